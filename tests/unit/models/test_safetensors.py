"""A safetensors header is believed only as far as the file bears it out."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.models.folders import SIZES, safetensors
from vllm_probe.core.errors import InvalidModel, UnreadableFile
from vllm_probe.models.safetensors import MAX_HEADER_BYTES, parse_header, read_header

HERE = Path("model.safetensors")


def entry(dtype: object = "F32", shape: object = (2, 3), offsets: object = (0, 24)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_a_header_gives_each_tensor_its_format_shape_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(safetensors({"a": ("BF16", (2, 3)), "b": ("I64", ()), "empty": ("F32", (0, 4))}))
    tensors = read_header(path)
    assert {name: (t.dtype, t.shape, t.nbytes, t.num_elements) for name, t in tensors.items()} == {
        "a": ("BF16", (2, 3), 12, 6),
        "b": ("I64", (), 8, 1),
        "empty": ("F32", (0, 4), 0, 0),
    }


def test_formats_narrower_than_a_byte_are_counted_in_bits() -> None:
    header = json.dumps({"a": entry("F4", (2, 3), (0, 3)), "b": entry("F6_E2M3", (4,), (3, 6))}).encode()
    assert [tensor.nbytes for tensor in parse_header(header, 6, HERE).values()] == [3, 3]


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff{}", "not JSON"),
        (b"{" * 100_000, "not JSON"),
        (b'{"a": 1, "a": 1}', "not JSON"),
        (b"[]", "not an object"),
        (b'{"a": []}', "number format"),
        ({"a": entry("F128")}, "number format"),
        ({"a": entry(["F32"])}, "number format"),
        ({"a": entry(shape="23")}, "shape and offsets"),
        ({"a": entry(shape=(-2, -3))}, "shape and offsets"),
        ({"a": entry(shape=(True, 6))}, "shape and offsets"),
        ({"a": entry(shape=(2.0, 3))}, "shape and offsets"),
        ({"a": entry(shape=(1 << 63, 0), offsets=(0, 0))}, "shape and offsets"),
        ({"a": entry(shape=[1] * 33)}, "shape and offsets"),
        ({"a": entry(offsets=(24,))}, "shape and offsets"),
        ({"a": entry(offsets=(-24, 0))}, "shape and offsets"),
        ({"a": entry(shape=(2, 4))}, "contradict"),
        ({"a": entry(shape=(1 << 62, 1 << 62))}, "contradict"),
        ({"a": entry(offsets=(24, 0))}, "contradict"),
        ({"a": entry("F4", (3,), (0, 1))}, "contradict"),
        ({"a": entry(offsets=(8, 32))}, "begins at byte 8"),
        ({"a": entry(), "b": entry(offsets=(12, 36))}, "begins at byte 12"),
        ({"a": entry(), "b": entry(offsets=(24, 48))}, "end at byte 48 of 24"),
        ({}, "end at byte 0 of 24"),
    ],
)
def test_a_header_that_the_format_forbids_is_refused(header: bytes | dict[str, Any], reason: str) -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    with pytest.raises(InvalidModel, match=reason):
        parse_header(text, 24, HERE)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x08", bytes(7), (1 << 63).to_bytes(8, "little"), (3).to_bytes(8, "little") + b"{}", b"\x80\x02pickle..."],
)
def test_a_length_that_does_not_fit_the_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(InvalidModel):
        read_header(path)


def test_a_header_above_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write((MAX_HEADER_BYTES + 1).to_bytes(8, "little"))
        file.truncate(1 << 40)
    with pytest.raises(InvalidModel, match="limit"):
        read_header(path)


def test_a_pipe_a_folder_and_nothing_are_unreadable_and_never_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "absent", tmp_path / "nul\0"):
        with pytest.raises(UnreadableFile):
            read_header(path)


@given(st.binary(max_size=200), st.integers(0, 1 << 40))
def test_any_bytes_give_tensors_or_a_typed_error(header: bytes, data_bytes: int) -> None:
    try:
        tensors = parse_header(header, data_bytes, HERE)
    except InvalidModel:
        return
    assert sum(tensor.nbytes for tensor in tensors.values()) == data_bytes


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.fixed_dictionaries(
            {
                "dtype": st.sampled_from([*SIZES, "F4", "X"]) | json_values,
                "shape": st.lists(st.integers(-1, 4) | st.just(1 << 62), max_size=3) | json_values,
                "data_offsets": st.lists(st.integers(-1, 64), min_size=2, max_size=2) | json_values,
            }
        ),
        max_size=3,
    )
)
def test_whatever_is_accepted_covers_the_data_exactly(header: dict[str, Any]) -> None:
    try:
        tensors = parse_header(json.dumps(header).encode(), 64, HERE)
    except InvalidModel:
        return
    assert sum(tensor.nbytes for tensor in tensors.values()) == 64
    assert all(0 <= tensor.begin <= tensor.end <= 64 for tensor in tensors.values())


@given(st.lists(st.tuples(st.sampled_from(sorted(SIZES)), st.lists(st.integers(0, 4), max_size=3)), max_size=5))
def test_what_the_format_allows_is_accepted(tensors: list[tuple[str, list[int]]]) -> None:
    named = {f"t{i}": (dtype, tuple(shape)) for i, (dtype, shape) in enumerate(tensors)}
    content = safetensors(named)
    length = int.from_bytes(content[:8], "little")
    found = parse_header(content[8 : 8 + length], len(content) - 8 - length, HERE)
    assert {name: (tensor.dtype, tensor.shape) for name, tensor in found.items()} == named
