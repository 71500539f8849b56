"""The header of a safetensors file; tensor data is never read.

Format: https://github.com/huggingface/safetensors#format. Eight bytes of little-endian length, a JSON object of
that length, and the tensors without gaps.
"""

import math
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from vllm_probe.core.errors import InvalidJson, InvalidModel, UnreadableFile
from vllm_probe.core.files import parse_json
from vllm_probe.core.values import JsonValue
from vllm_probe.models.files import mode_of

MAX_HEADER_BYTES = 10_000_000
_MAX_RANK = 32
LENGTH_BYTES = 8
_KEYS = ("dtype", "shape", "data_offsets")
_BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
_BITS |= dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E5M2FNUZ", "F8_E4M3FNUZ", "F8_E8M0"), 8)
_BITS |= dict.fromkeys(("U16", "I16", "F16", "BF16"), 16)
_BITS |= dict.fromkeys(("U32", "I32", "F32"), 32)
_BITS |= dict.fromkeys(("U64", "I64", "F64", "C64"), 64)


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a file.

    Attributes:
        dtype: number format in the format's word, such as `BF16`.
        shape: dimensions.
        begin: first byte, counted from the end of the header.
        end: byte after the last.
    """

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.end - self.begin

    @property
    def num_elements(self) -> int:
        """Product of the dimensions."""
        return math.prod(self.shape)


def read_header(path: Path) -> dict[str, TensorInfo]:
    """Every tensor of the file at `path`, by name; reads at most `MAX_HEADER_BYTES`.

    Raises:
        UnreadableFile: absent or not permitted.
        InvalidModel: not a regular file, or a header that the format forbids.
    """
    if not stat.S_ISREG(mode_of(path)):
        raise UnreadableFile(f"cannot read {path}: not a file", hint="get the model's files again")
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size - LENGTH_BYTES
            length = header_length(file.read(LENGTH_BYTES), size, path)
            header = file.read(length)
    except OSError as error:
        raise UnreadableFile(f"cannot read {path}: {error.strerror}", hint="check its permissions") from error
    return parse_header(header, size - length, path)


def header_length(prefix: bytes, rest_bytes: int, path: Path) -> int:
    """Length of the header as the file's first eight bytes, `prefix`, say it; `rest_bytes` come after them.

    Raises:
        InvalidModel: longer than the file or than `MAX_HEADER_BYTES`.
    """
    length = int.from_bytes(prefix, "little")
    if length > min(MAX_HEADER_BYTES, rest_bytes):
        raise _invalid(path, f"no header of {length} bytes fits, the limit is {MAX_HEADER_BYTES}")
    return length


def parse_header(header: bytes, data_bytes: int, path: Path) -> dict[str, TensorInfo]:
    """The tensors that the JSON `header` lays over `data_bytes` bytes; `path` is for messages only.

    Raises:
        InvalidModel: not JSON of that form, an unknown format, or tensors that overlap, leave gaps or leave the file.
    """
    try:
        value = parse_json(header.decode(), str(path))
    except (UnicodeDecodeError, InvalidJson) as error:
        raise _invalid(path, "the header is not JSON") from error
    if not isinstance(value, dict):
        raise _invalid(path, "the header is not an object of tensors")
    value.pop("__metadata__", None)
    tensors = {name: _tensor(item, f"tensor {name[:80]!r}", path) for name, item in value.items()}
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda pair: (pair[1].begin, pair[1].end)):
        if tensor.begin != end:
            raise _invalid(path, f"tensor {name[:80]!r} begins at byte {tensor.begin} where {end} is due")
        end = tensor.end
    if end != data_bytes:
        raise _invalid(path, f"the tensors end at byte {end} of {data_bytes}: a truncated or incomplete file")
    return tensors


def _tensor(value: JsonValue, place: str, path: Path) -> TensorInfo:
    dtype, shape, offsets = (value.get(key) for key in _KEYS) if isinstance(value, dict) else (None, None, None)
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise _invalid(path, f"{place} has no known number format")
    if not _naturals(shape) or len(shape) > _MAX_RANK or not _naturals(offsets) or len(offsets) != 2:
        raise _invalid(path, f"{place} has no usable shape and offsets")
    tensor = TensorInfo(dtype, tuple(shape), *offsets)
    if tensor.num_elements * _BITS[dtype] != tensor.nbytes * 8:
        raise _invalid(path, f"{place} has {tensor.nbytes} bytes, which its shape and format contradict")
    return tensor


def _naturals(value: JsonValue) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def _invalid(path: Path, reason: str) -> InvalidModel:
    return InvalidModel(f"{path}: {reason}", hint="the file is damaged or not safetensors; get it again")
