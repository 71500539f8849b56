"""Metadata and tensor table of a GGUF file; tensor data is never read, arrays of the tokenizer are passed over.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3 in either byte order. Split files
name themselves `NAME-00001-of-0000N.gguf`; each is a whole GGUF file, the first holds the metadata of the model.
"""

import math
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from vllm_probe.core.errors import InvalidModel, UnreadableFile, UnsupportedModel
from vllm_probe.core.values import JsonValue
from vllm_probe.models.files import mode_of
from vllm_probe.models.gguf_stream import Stream
from vllm_probe.models.safetensors import TensorInfo

MAGIC = b"GGUF"
MAX_TENSORS = 1 << 16
_MAX_KEYS = 1 << 12
_MAX_RANK = 4  # GGML_MAX_DIMS
_MAX_NAME = 1 << 10
_TOKENIZER = "tokenizer.ggml.model"
_SPLIT = re.compile(r"(.{1,200})-(\d{5})-of-(\d{5})\.gguf")

TYPES: dict[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 36),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}
"""Number of a ggml type to its name, weights in a block and bytes of a block (ggml.h and ggml-common.h).

Types that ggml has taken out again (4 and 5, 31 to 33, 36 to 38) are not read by llama.cpp either.
"""


@dataclass(frozen=True, slots=True)
class GgufFile:
    """What a GGUF model says about itself.

    Attributes:
        version: of the format.
        metadata: values by key; of the arrays those of at most 4096 items, and of the tokenizer its kind and token ids.
        tensors: every tensor by name, with ggml's word for its format, its shape with rows first, and its place in its
            file behind the header.
    """

    version: int
    metadata: dict[str, JsonValue]
    tensors: dict[str, TensorInfo]


def read_gguf(path: Path) -> GgufFile:
    """The model in the file at `path`, and in the further files of a split one.

    Raises:
        UnreadableFile: absent or not permitted; of a split model the file that is missing is named.
        InvalidModel: damaged, or files that are not of one model.
        UnsupportedModel: a version of the format or a type of tensor that is not known.
    """
    split = _SPLIT.fullmatch(path.name)
    if split is None:
        whole = _read_file(path)
        if whole.metadata.get("split.count", 1) > 1:
            message = f"{path} is a part of {whole.metadata['split.count']} under another name"
            raise InvalidModel(message, hint="name its parts NAME-00001-of-0000N.gguf, and give the first")
        return whole
    count = int(split[3])
    if not 1 <= int(split[2]) <= count:
        raise _invalid(path, f"there is no part {int(split[2])} of {count}")
    first = _read_part(path, split[1], 1, count)
    tensors = dict(first.tensors)
    for number in range(2, count + 1):
        part = _read_part(path, split[1], number, count)
        if not part.tensors.keys().isdisjoint(tensors):
            raise _invalid(path, f"part {number} repeats a tensor of another part")
        tensors |= part.tensors
        if len(tensors) > MAX_TENSORS:
            raise _invalid(path, f"more than {MAX_TENSORS} tensors")
    if first.metadata.get("split.tensors.count", len(tensors)) != len(tensors):
        raise _invalid(path, f"its parts hold {len(tensors)} of {first.metadata['split.tensors.count']} tensors")
    return GgufFile(first.version, first.metadata, tensors)


def is_first_part(path: Path) -> bool:
    """Whether `path` is a whole model or the first part of a split one, by its name."""
    split = _SPLIT.fullmatch(path.name)
    return split is None or int(split[2]) == 1


def model_name(path: Path) -> str:
    """The name of the model in the file at `path`, the number of a part left out."""
    split = _SPLIT.fullmatch(path.name)
    return split[1] if split else path.stem


def _read_part(path: Path, stem: str, number: int, count: int) -> GgufFile:
    place = path.with_name(f"{stem}-{number:05}-of-{count:05}.gguf")
    part = _read_file(place)
    stated = part.metadata.get("split.no", number - 1), part.metadata.get("split.count", count)
    if stated != (number - 1, count):
        raise _invalid(place, f"its metadata says part {stated[0]!r:.20} of {stated[1]!r:.20}, counted from 0")
    return part


def _read_file(path: Path) -> GgufFile:
    mode = mode_of(path)
    if not stat.S_ISREG(mode):
        problem = "is not a file" if mode else "does not exist"
        raise UnreadableFile(
            f"cannot read {path}: it {problem}", hint="check the path; a model in parts needs all of them"
        )
    try:
        with path.open("rb") as file:
            return _parse(Stream(file, os.fstat(file.fileno()).st_size, path))
    except OSError as error:
        raise UnreadableFile(f"cannot read {path}: {error.strerror}", hint="check its permissions") from error


def _parse(stream: Stream) -> GgufFile:
    if stream.take(4) != MAGIC:
        raise stream.invalid("it does not begin with GGUF")
    version = stream.number("I")
    if not version & 0xFFFF:  # read in the wrong byte order
        stream.order = ">"
        version = int.from_bytes(version.to_bytes(4, "little"), "big")
    if version not in (2, 3):
        raise UnsupportedModel(f"{stream.path} is GGUF version {version}", hint="convert the model again, to version 3")
    num_tensors, num_keys = stream.number("Q"), stream.number("Q")
    if num_tensors > MAX_TENSORS or num_keys > _MAX_KEYS:
        raise stream.invalid(f"{num_tensors} tensors and {num_keys} keys are more than a model has")
    metadata: dict[str, JsonValue] = {}
    for _ in range(num_keys):
        key = stream.text(_MAX_NAME)
        if key in metadata:
            raise stream.invalid(f"the key {key[:80]!r} occurs twice")
        metadata[key] = stream.value(keeps=key == _TOKENIZER or not key.startswith("tokenizer."))
    tensors: dict[str, TensorInfo] = {}
    for _ in range(num_tensors):
        name = stream.text(_MAX_NAME)
        if name in tensors:
            raise stream.invalid(f"the tensor {name[:80]!r} occurs twice")
        tensors[name] = _tensor(stream, name)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 1 <= alignment <= 1 << 20 or alignment & (alignment - 1):
        raise stream.invalid("general.alignment is not a power of 2")
    _check_layout(stream, tensors, alignment)
    return GgufFile(version, {key: value for key, value in metadata.items() if value is not None}, tensors)


def _tensor(stream: Stream, name: str) -> TensorInfo:
    rank = stream.number("I")
    if rank > _MAX_RANK:
        raise stream.invalid(f"the tensor {name[:80]!r} has {rank} dimensions")
    shape = [stream.number("Q") for _ in range(rank)]
    kind, begin = stream.number("I"), stream.number("Q")
    if kind not in TYPES:
        raise UnsupportedModel(
            f"{stream.path}: the tensor {name[:80]!r} has the type {kind}, which is not known",
            hint="quantize the model again with a current llama.cpp",
        )
    word, block, block_bytes = TYPES[kind]
    row = shape[0] if shape else 1
    if row % block:
        raise stream.invalid(f"rows of {row} in {name[:80]!r} are no whole blocks of {block}")
    return TensorInfo(word, tuple(reversed(shape)), begin, begin + math.prod(shape) // block * block_bytes)


def _check_layout(stream: Stream, tensors: dict[str, TensorInfo], alignment: int) -> None:
    """Tensors lie one behind the other in the order of the table, each padded to the alignment, as ggml demands."""
    start = -(-stream.position // alignment) * alignment
    due = end = 0
    for name, tensor in tensors.items():
        if tensor.begin != due:
            raise stream.invalid(f"the tensor {name[:80]!r} begins at byte {tensor.begin} where {due} is due")
        end = tensor.end
        due = -(-end // alignment) * alignment
    if end and start + end > stream.size:
        raise stream.invalid(f"its tensors end at byte {start + end} of {stream.size}: truncated")


def _invalid(path: Path, reason: str) -> InvalidModel:
    return InvalidModel(f"{path}: {reason}", hint="get all files of the model again")
