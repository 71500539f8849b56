"""Tensors of an ONNX graph: dimensions, bytes, and where the file says that their values are."""

import math
import re
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_probe.core.errors import InvalidModel
from vllm_probe.models.files import mode_of
from vllm_probe.models.onnx.graph import Tensor
from vllm_probe.models.onnx.outline import LENGTH_KEY

if TYPE_CHECKING:
    import onnx

FLOAT, BFLOAT16, FLOAT16 = 1, 16, 10
DTYPES = {FLOAT: "float32", FLOAT16: "float16", BFLOAT16: "bfloat16"}
"""`TensorProto.DataType` to the number formats that a checkpoint can have."""

BITS = {FLOAT: 32, 2: 8, 3: 8, 4: 16, 5: 16, 6: 32, 7: 64, 9: 8, FLOAT16: 16, 11: 64, 12: 32, 13: 64, 14: 64, 15: 128}
BITS |= {BFLOAT16: 16, 17: 8, 18: 8, 19: 8, 20: 8, 21: 4, 22: 4, 23: 4, 24: 8, 25: 2, 26: 2, 27: 6, 28: 6}
"""`TensorProto.DataType` to bits of an element, https://github.com/onnx/onnx/blob/main/onnx/onnx.proto."""

FP8 = (17, 18, 19, 20)
FLOATS = {FLOAT, FLOAT16, BFLOAT16, 11, *FP8, 23, 24}
"""Formats that weights have and shapes do not."""

_INTEGERS = {6: "i", 7: "q"}
_MAX_RANK = 32
_MAX_ELEMENTS = 1 << 62
_FEW = 32  # whole numbers that can be a shape
_DRIVE = re.compile(r"[A-Za-z]:")


class TensorReader:
    """Reads the tensors of one file; the files with their values are looked at from outside only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sizes: dict[str, int | None] = {}

    @property
    def absent(self) -> list[str]:
        """Files with values that are not there."""
        return [name for name, size in self._sizes.items() if size is None]

    def read(self, tensor: "onnx.TensorProto", name: str) -> Tensor:
        """The tensor as `name`.

        Raises:
            InvalidModel: an unknown format, impossible dimensions, values of another size, or values in a file outside
                of the model's folder.
            UnreadableFile: the file with the values may not be looked at.
        """
        dims, shown = tuple(tensor.dims), f"tensor {tensor.name[:80]!r}"
        if tensor.data_type not in BITS and tensor.data_type != tensor.STRING:
            raise self._invalid(f"{shown} has the number format {tensor.data_type}, which is not known")
        if len(dims) > _MAX_RANK or any(size < 0 for size in dims) or math.prod(dims) > _MAX_ELEMENTS:
            raise self._invalid(f"{shown} has the dimensions {list(dims[:_MAX_RANK])}, which no tensor has")
        found = Tensor(name, dims, tensor.data_type, BITS.get(tensor.data_type, 0), _integers(tensor))
        if tensor.data_location == tensor.EXTERNAL:
            self._check_external(tensor, found, shown)
        elif tensor.raw_data and len(tensor.raw_data) != found.nbytes:
            raise self._contradicted(shown, found, len(tensor.raw_data))
        return found

    def _check_external(self, tensor: "onnx.TensorProto", found: Tensor, shown: str) -> None:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if LENGTH_KEY in entries:
            inline = _number(entries[LENGTH_KEY])
            packed = {tensor.INT32, tensor.INT64, tensor.UINT64, tensor.STRING}  # as numbers of any length
            if inline != found.nbytes and found.kind not in packed and found.bits >= BITS[FLOAT]:
                raise self._contradicted(shown, found, inline)
            return
        place, offset = entries.get("location", ""), _number(entries.get("offset", "0"))
        length = _number(entries.get("length", str(found.nbytes)))
        if offset is None or length is None or not _stays_inside(place):
            where = f"{place[:80]!r} from {entries.get('offset', '0')[:20]}"
            raise self._invalid(f"the values of {shown} are in {where}, which is no place beside the model")
        if length != found.nbytes:
            raise self._contradicted(shown, found, length)
        size = self._size_of(place)
        if size is not None and offset + length > size:
            raise self._invalid(f"the values of {shown} end at byte {offset + length} of {place}, which has {size}")

    def _size_of(self, place: str) -> int | None:
        """Bytes of the file `place` beside the model, null when it is not there."""
        if place not in self._sizes:
            file = self._path.parent / place
            mode = mode_of(file)
            if mode and not stat.S_ISREG(mode):
                raise self._invalid(f"{place}, which should hold values of tensors, is not a file")
            self._sizes[place] = file.stat().st_size if mode else None
        return self._sizes[place]

    def _contradicted(self, shown: str, found: Tensor, stated: int | None) -> InvalidModel:
        return self._invalid(f"{shown} has {stated} bytes where its dimensions and format make {found.nbytes}")

    def _invalid(self, reason: str) -> InvalidModel:
        hint = "the file is damaged or was made by hand; export it again"
        return InvalidModel(f"{self._path}: {reason}", hint=hint)


def _integers(tensor: "onnx.TensorProto") -> tuple[int, ...] | None:
    """The values of a vector of few whole numbers that stands in the graph itself."""
    dims, kind = tuple(tensor.dims), _INTEGERS.get(tensor.data_type)
    if kind is None or len(dims) > 1 or (count := math.prod(dims)) > _FEW or tensor.data_location == tensor.EXTERNAL:
        return None
    if tensor.raw_data:
        wide = struct.Struct(f"<{count}{kind}")
        return wide.unpack(tensor.raw_data) if wide.size == len(tensor.raw_data) else None
    values = tensor.int64_data if tensor.data_type == tensor.INT64 else tensor.int32_data
    return tuple(values) if len(values) == count else None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _stays_inside(place: str) -> bool:
    """Whether a path is below the model's folder, as the format demands."""
    parts = place.replace("\\", "/").split("/")
    return bool(place) and "\0" not in place and parts[0] != "" and ".." not in parts and not _DRIVE.match(place)
