"""What the public methods of an adapter refuse before a hook sees it, so that no vendor has to."""

import math
from collections.abc import Collection, Sequence
from typing import Any, TypeGuard, get_args

from vllm_probe.core.errors import BadUsage, UnknownName
from vllm_probe.core.primitive import DeviceTensor
from vllm_probe.core.values import FenceScope


def is_size(value: object) -> TypeGuard[int]:
    """Whether `value` is a whole number and not negative; a truth value is none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def check_allocation(device: str, nbytes: int, alignment: int) -> None:
    """Raises `BadUsage` for a size that is none, and for an alignment that is no power of two."""
    if not is_size(nbytes) or not is_size(alignment) or alignment.bit_count() != 1:
        hint = "sizes are whole and not negative, alignments are powers of two"
        raise BadUsage(f"{device}: {nbytes} bytes at multiples of {alignment} cannot be allocated", hint=hint)


def check_format(dtype: str, known: Collection[str]) -> None:
    """Raises `UnknownName` for a number format that the adapter does not hold."""
    if dtype not in known:
        raise UnknownName(f"no data is held in {dtype!r} here", hint=f"the formats are {', '.join(known)}")


def check_shape(shape: Sequence[int]) -> None:
    """Raises `BadUsage` for a shape with a size that is none."""
    if not all(is_size(size) for size in shape):
        raise BadUsage(f"{[*shape]} is no shape", hint="sizes are whole and not negative")


def check_copy(source: DeviceTensor, target: DeviceTensor, queue: int, queues: int) -> None:
    """Raises `BadUsage` where `target` has another size or format than `source`, or there is no such queue.

    Of the format the bytes of an element are known, and the type where both tensors have a `dtype`.
    """
    if queue not in range(queues):
        raise BadUsage(f"there is no queue {queue}", hint=f"copy_queues is {queues}, and the first is 0")
    first, second = getattr(source, "dtype", None), getattr(target, "dtype", None)
    same = source.nbytes == target.nbytes and (first is second or first == second or None in (first, second))
    if not same or (source.shape != target.shape and math.prod(source.shape) != math.prod(target.shape)):
        sizes = [f"{each.nbytes} bytes of shape {[*each.shape]}" for each in (source, target)]
        hint = "a copy converts and repeats nothing: give a target of the same size and format"
        raise BadUsage(f"{sizes[0]} cannot be copied over {sizes[1]}", hint=hint)


def check_part(tensor: DeviceTensor, offset: int, nbytes: int) -> None:
    """Raises `BadUsage` where the part does not lie within `tensor`."""
    if not is_size(offset) or not is_size(nbytes) or offset + nbytes > tensor.nbytes:
        message = f"{nbytes} bytes from {offset} on are not within {tensor.nbytes}"
        raise BadUsage(message, hint="name a part of what was allocated")


def check_scope(scope: FenceScope) -> None:
    """Raises `UnknownName` for what is no scope of a fence."""
    if scope not in _SCOPES:
        raise UnknownName(f"no fence has the scope {scope!r}", hint=f"the scopes are {', '.join(_SCOPES)}")


def check_sequences(
    query: DeviceTensor, key: DeviceTensor, value: DeviceTensor, lengths: Sequence[int], *, causal: bool
) -> None:
    """Raises `BadUsage` where `lengths` are not those of what attention is given."""
    queries, tokens = query.shape[0], key.shape[0]
    fewer = causal and len(lengths) == 1 and queries <= tokens
    if value.shape[0] != tokens or not (queries == tokens or fewer):
        message = f"attention of {queries} queries to {tokens} keys and {value.shape[0]} values"
        raise BadUsage(message, hint="give one of each for a token; of a single causal sequence fewer queries")
    if not all(is_size(length) for length in lengths) or sum(lengths) != tokens:
        message = f"sequences of {[*lengths[:8]]} tokens{' ...' * (len(lengths) > 8)} are not {tokens} tokens"
        raise BadUsage(message, hint="the lengths add up to the first size of keys and values")


def check_blocks(pool: DeviceTensor, blocks: Sequence[int], host: DeviceTensor, block_bytes: int) -> None:
    """Raises `BadUsage` for a block that is not in `pool` or named twice, and where `host` holds fewer."""
    if not is_size(block_bytes) or not block_bytes:
        raise BadUsage(f"a block cannot have {block_bytes} bytes", hint="give a whole number of bytes")
    count = pool.nbytes // block_bytes
    strangers: list[Any] = [block for block in blocks if not is_size(block) or block >= count]
    if strangers or len(set(blocks)) != len(blocks):
        message = f"{strangers[0]} is none of {count} blocks" if strangers else "a block is named twice"
        raise BadUsage(message, hint=f"name each block of the pool once, from 0 to {count - 1}")
    if len(blocks) * block_bytes > host.nbytes:
        message = f"{len(blocks)} blocks of {block_bytes} bytes are more than the {host.nbytes} of the host"
        raise BadUsage(message, hint="allocate as many bytes on the host as the blocks have")


_SCOPES: tuple[str, ...] = get_args(FenceScope)
