"""GGUF files of a few kilobytes, byte by byte as the format says."""

import math
import struct
from collections.abc import Mapping
from typing import Any

from vllm_probe.models.gguf import TYPES

NUMBERS = {word: number for number, (word, _, _) in TYPES.items()}
LETTERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
Tensors = Mapping[str, tuple[str, tuple[int, ...]]]


def text(value: str | bytes, order: str = "<") -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return struct.pack(order + "Q", len(content)) + content


def kind_of(value: object) -> int:
    """The type that a writer would choose."""
    if isinstance(value, bool):
        return 7
    if isinstance(value, int):
        return 4 if 0 <= value < 1 << 32 else 11
    return {float: 6, str: 8, bytes: 8, list: 9}[type(value)]


def payload(kind: int, value: Any, order: str = "<") -> bytes:
    """`value` as the bytes of type `kind`, without the type in front."""
    if kind == 8:
        return text(value, order)
    if kind == 9:
        item = kind_of(value[0]) if value else 4
        return struct.pack(order + "IQ", item, len(value)) + b"".join(payload(item, each, order) for each in value)
    return struct.pack(order + LETTERS[kind], value)


def header(num_tensors: int, num_keys: int, order: str = "<", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack(order + "IQQ", version, num_tensors, num_keys)


def key(name: str | bytes, kind: int, content: bytes, order: str = "<") -> bytes:
    return text(name, order) + struct.pack(order + "I", kind) + content


def entry(name: str, kind: int, shape: tuple[int, ...], begin: int, order: str = "<") -> bytes:
    """A row of the tensor table; `shape` has rows first."""
    dimensions = struct.pack(f"{order}I{len(shape)}Q", len(shape), *reversed(shape))
    return text(name, order) + dimensions + struct.pack(order + "IQ", kind, begin)


def size_of(word: str, shape: tuple[int, ...]) -> int:
    _, block, nbytes = TYPES[NUMBERS[word]]
    return math.prod(shape) // block * nbytes


def gguf(metadata: Mapping[str, object], tensors: Tensors, *, order: str = "<", version: int = 3) -> bytes:
    """A file whose tensors are zeros."""
    stated = metadata.get("general.alignment", 32)
    alignment = stated if isinstance(stated, int) else 32
    found = header(len(tensors), len(metadata), order, version)
    found += b"".join(key(name, kind_of(v), payload(kind_of(v), v, order), order) for name, v in metadata.items())
    begin = 0
    for name, (word, shape) in tensors.items():
        found += entry(name, NUMBERS[word], shape, begin, order)
        begin += -(-size_of(word, shape) // alignment) * alignment
    return found + bytes(-len(found) % alignment) + bytes(begin)


def model(architecture: str, values: Mapping[str, object], tensors: Tensors, **others: object) -> bytes:
    """A file of `architecture`, which stands before the keys of `values`."""
    own = {f"{architecture}.{name}": value for name, value in values.items()}
    vocabulary = ["a", "b", "é"] * 40
    return gguf(
        {
            "general.architecture": architecture,
            **own,
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.tokens": vocabulary,
            "tokenizer.ggml.scores": [0.5] * 120,
            "tokenizer.ggml.eos_token_id": 31,
            **{name.replace("__", "."): value for name, value in others.items()},
        },
        tensors,
    )
