"""The primitives that an adapter can have, checked for order and handed to the vendor's hooks."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic

from vllm_probe.core import arguments
from vllm_probe.core.bringup import Stage
from vllm_probe.core.errors import AdapterOutOfOrder, UnknownName
from vllm_probe.core.offering import Offering
from vllm_probe.core.primitive import Compiled, CompileHints, Linear, Primitive, Support, Tensor
from vllm_probe.core.values import FenceScope


class Operations(Offering, Generic[Tensor]):
    """Primitives of one device; those that a vendor has appear in `implementations` and override their hook.

    Number formats are capability words (`bf16`, `int8`). An implementation that is null is the adapter's preference; a
    name that is none of `implementations` raises `UnknownName`.
    """

    def supports(self, primitive: Primitive, dtype: str, shape: Sequence[int] = ()) -> Support:
        """Whether `primitive` runs in `dtype` on this device with what is installed.

        Args:
            primitive: the operation.
            dtype: number format.
            shape: [rows, k, n] of a linear, the shape of the first operand of others; empty: any common one.
        """
        self._require(Stage.DEVICE_SET, "supports")
        return self._supports(primitive, dtype, tuple(shape))

    def group_widths(self, implementation: str) -> tuple[int, ...]:
        """Lanes per group that the linear `implementation` can be launched with; empty where that is not ours."""
        self._require(Stage.DEVICE_SET, "group_widths")
        return self._group_widths(implementation)

    def process_widths(self) -> tuple[int, ...]:
        """Lanes per group that all of this process can be limited to, the device's own first; empty: no choice."""
        self._require(Stage.DEVICE_SET, "process_widths")
        return self._process_widths()

    def limit_width(self, lanes: int) -> bool:
        """Limits what this process computes from now on to one of `process_widths`, before `open`.

        Returns:
            Whether the limit holds: not where the libraries have chosen their instructions already.

        Raises:
            AdapterOutOfOrder: after `open`.
            UnknownName: there is no such width.
        """
        self._require(Stage.DEVICE_SET, "limit_width")
        if self._stage is Stage.OPEN:
            raise AdapterOutOfOrder("limit_width after open", hint="limit the width first")
        if lanes not in self._process_widths():
            raise UnknownName(f"{self.device.id} cannot compute {lanes} lanes wide", hint="see process_widths()")
        return self._limit_width(lanes)

    def prepare_linear(
        self,
        weight: Tensor,
        bias: Tensor | None,
        dtype: str,
        implementation: str | None = None,
        *,
        group_width: int | None = None,
    ) -> Linear[Tensor]:
        """An operator for `weight` [n, k] in `dtype`, packed as `implementation` wants it.

        The operator takes activations [rows, k] and gives [rows, n]: `dtype`, or int32 for int8 and bf16 for fp8.
        The weight may be released afterwards.

        Args:
            weight: [n, k].
            bias: [n], or null.
            dtype: number format of weight and activations.
            implementation: one of `implementations`.
            group_width: one of `group_widths`, null for the implementation's own.

        Raises:
            UnknownName: there is no such implementation, or it cannot be launched with that width.
        """
        self._require(Stage.OPEN, "prepare_linear")
        name = implementation or self._first(Primitive.LINEAR, dtype)
        if name not in self.implementations(Primitive.LINEAR, dtype):
            raise UnknownName(f"linear in {dtype} has no implementation {name!r}", hint="see implementations()")
        if group_width is None:
            return self._prepare_linear(weight, bias, dtype, name)
        if group_width not in self._group_widths(name):
            raise UnknownName(f"{name} cannot be launched {group_width} lanes wide", hint="see group_widths()")
        return self._prepare_wide(weight, bias, dtype, name, group_width)

    def weight_only_formats(self) -> tuple[str, ...]:
        """Formats, `int8` or `int4`, that `prepare_weight_only` can keep a weight in; empty where it has no kernel."""
        self._require(Stage.DEVICE_SET, "weight_only_formats")
        return self._weight_only_formats()

    def prepare_weight_only(self, weight: Tensor, dtype: str) -> Linear[Tensor]:
        """An operator for `weight` [n, k] that holds it in `dtype` and multiplies in bf16: a saving, no compute rate.

        The operator takes bf16 [rows, k] and gives bf16 [rows, n]. The weight may be released afterwards.

        Args:
            weight: [n, k], bf16; each row is rounded to nearest over its own scale, int4 over one for each 32 of k.
            dtype: one of `weight_only_formats`.

        Raises:
            UnknownName: there is no such format, or the kernel does not take n and k.
        """
        self._require(Stage.OPEN, "prepare_weight_only")
        if dtype not in self._weight_only_formats():
            raise UnknownName(f"{self.device.id} keeps no weight in {dtype}", hint="see weight_only_formats()")
        return self._prepare_weight_only(weight, dtype)

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        lengths: Sequence[int],
        *,
        causal: bool,
        implementation: str | None = None,
    ) -> Tensor:
        """Attention within each of the sequences that are packed one after another, scaled by 1/sqrt(head_dim).

        Args:
            query: [sum(lengths), num_heads, head_dim], fp32, bf16 or fp16; of a single causal sequence fewer, which are
                its last tokens, so that a prompt can be computed in chunks.
            key: [sum(lengths), num_kv_heads, head_dim]; num_kv_heads divides num_heads.
            value: as `key`.
            lengths: tokens of each sequence.
            causal: whether a token sees only itself and those before it.
            implementation: one of `implementations`.

        Returns:
            New tensor of the shape and format of `query`.

        Raises:
            BadUsage: the lengths are not those of the tokens.
        """
        self._require(Stage.OPEN, "attention")
        self._require_known(Primitive.ATTENTION, implementation)
        arguments.check_sequences(query, key, value, lengths, causal=causal)
        return self._attention(query, key, value, lengths, causal, implementation)

    def rms_norm(self, rows: Tensor, weight: Tensor, epsilon: float, *, implementation: str | None = None) -> Tensor:
        """`rows` over the root of the mean of their squares plus `epsilon`, times `weight`.

        Computed in fp32, rounded to the format of `rows`, then multiplied, which is the order of transformers' Qwen3.

        Args:
            rows: [..., n], fp32, bf16 or fp16.
            weight: [n], or [m, n] for rows [..., m, n], in the format of `rows`.
            epsilon: added to the mean of squares.
            implementation: one of `implementations`.

        Returns:
            New tensor of the shape and format of `rows`.
        """
        self._require(Stage.OPEN, "rms_norm")
        self._require_known(Primitive.RMS_NORM, implementation)
        return self._rms_norm(rows, weight, epsilon, implementation)

    def rope(self, heads: Tensor, cosines: Tensor, sines: Tensor, *, implementation: str | None = None) -> Tensor:
        """`heads` with their first and second halves rotated against each other, as https://arxiv.org/abs/2104.09864.

        Args:
            heads: [tokens, num_heads, head_dim], fp32, bf16 or fp16.
            cosines: [tokens, head_dim / 2] of each token's angles, in the format of `heads`.
            sines: as `cosines`.
            implementation: one of `implementations`.

        Returns:
            New tensor of the shape and format of `heads`.
        """
        self._require(Stage.OPEN, "rope")
        self._require_known(Primitive.ROPE, implementation)
        return self._rope(heads, cosines, sines, implementation)

    def quantize(self, rows: Tensor, *, implementation: str | None = None) -> tuple[Tensor, Tensor]:
        """`rows` [n, k] in int8, each row over its own scale: its largest magnitude / 127, 1 for a row of zeros.

        Rounded to nearest, ties to even.

        Returns:
            int8 [n, k] and fp32 scales [n].
        """
        self._require(Stage.OPEN, "quantize")
        self._require_known(Primitive.QUANTIZE, implementation)
        return self._quantize(rows, implementation)

    def swap(
        self,
        pool: Tensor,
        blocks: Sequence[int],
        host: Tensor,
        *,
        block_bytes: int,
        to_device: bool,
        implementation: str | None = None,
    ) -> None:
        """Moves blocks between device and host, and ends with a fence of `system` scope.

        Args:
            pool: memory of the device that `allocate` gave, block n at byte n * block_bytes.
            blocks: the blocks of `pool` concerned, each once.
            host: memory that `allocate_pinned` gave, block `blocks[i]` at byte i * block_bytes.
            block_bytes: size of a block.
            to_device: from `host` into `pool`; else the other way.
            implementation: one of `implementations`.

        Raises:
            BadUsage: a block is not in `pool` or named twice, or `host` is too small.
        """
        self._require(Stage.OPEN, "swap")
        self._require_known(Primitive.SWAP, implementation)
        arguments.check_blocks(pool, blocks, host, block_bytes)
        self._swap(pool, blocks, host, block_bytes, to_device, implementation)
        self._fence(Primitive.SWAP.fence_scope)

    def compile_model(self, function: Callable[..., Any], hints: CompileHints) -> Compiled:
        """`function` compiled for this device, or itself and the reason why there is no compiler.

        It takes tensors and numbers and gives new tensors; weights are arguments, so that one function serves all
        layers. Until it is compiled, and wherever the result would differ from its own, it runs as it is.
        """
        self._require(Stage.OPEN, "compile_model")
        return self._compile_model(function, hints)

    def _supports(self, primitive: Primitive, dtype: str, shape: tuple[int, ...]) -> Support:
        if self.implementations(primitive, dtype):
            return Support(ok=True)
        return Support(ok=False, reason=f"the adapter has no {primitive} in {dtype}")

    def _prepare_linear(self, weight: Tensor, bias: Tensor | None, dtype: str, implementation: str) -> Linear[Tensor]:
        self._missing(Primitive.LINEAR)

    def _group_widths(self, implementation: str) -> tuple[int, ...]:
        return ()

    def _process_widths(self) -> tuple[int, ...]:
        return ()

    def _limit_width(self, lanes: int) -> bool:
        return False

    def _weight_only_formats(self) -> tuple[str, ...]:
        return ()

    def _prepare_weight_only(self, weight: Tensor, dtype: str) -> Linear[Tensor]:
        self._missing(Primitive.LINEAR)

    def _prepare_wide(
        self, weight: Tensor, bias: Tensor | None, dtype: str, implementation: str, group_width: int
    ) -> Linear[Tensor]:
        self._missing(Primitive.LINEAR)

    def _attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        lengths: Sequence[int],
        causal: bool,
        implementation: str | None,
    ) -> Tensor:
        self._missing(Primitive.ATTENTION)

    def _rms_norm(self, rows: Tensor, weight: Tensor, epsilon: float, implementation: str | None) -> Tensor:
        self._missing(Primitive.RMS_NORM)

    def _rope(self, heads: Tensor, cosines: Tensor, sines: Tensor, implementation: str | None) -> Tensor:
        self._missing(Primitive.ROPE)

    def _quantize(self, rows: Tensor, implementation: str | None) -> tuple[Tensor, Tensor]:
        self._missing(Primitive.QUANTIZE)

    def _swap(
        self,
        pool: Tensor,
        blocks: Sequence[int],
        host: Tensor,
        block_bytes: int,
        to_device: bool,
        implementation: str | None,
    ) -> None:
        self._missing(Primitive.SWAP)

    def _compile_model(self, function: Callable[..., Any], hints: CompileHints) -> Compiled:
        return Compiled(function=function, reason=f"the adapter of {self.device.id} names no compiler")

    @abstractmethod
    def _fence(self, scope: FenceScope) -> None: ...
