"""Of an ONNX file all is kept but comments and the values of tensors, whatever the bytes."""

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from tests.unit.models.onnx.graphs import decoder
from vllm_probe.core.errors import InvalidModel
from vllm_probe.models.onnx import outline as module
from vllm_probe.models.onnx.outline import LENGTH_KEY, MAX_VALUE_BYTES, outline

SCHEMA = onnx.ModelProto.DESCRIPTOR


def short(data: bytes) -> bytes:
    return outline(memoryview(data), SCHEMA, "model.onnx")


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field of less than 16 KiB, or of any length that is a multiple of 16 KiB."""
    size, digits = len(content), []
    while size > 127:
        digits.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2, *digits, size]) + content


def split(data: bytes) -> list[bytes]:
    """The fields of a serialized model, each by itself."""
    model = onnx.ModelProto.FromString(data)
    parts = []
    for descriptor, value in model.ListFields():
        for each in value if descriptor.is_repeated else [value]:
            alone = onnx.ModelProto()
            if descriptor.is_repeated:
                getattr(alone, descriptor.name).append(each)
            elif descriptor.message_type:
                getattr(alone, descriptor.name).CopyFrom(each)
            else:
                setattr(alone, descriptor.name, each)
            parts.append(alone.SerializeToString())
    return parts


def with_tensor(array: np.ndarray) -> bytes:
    tensor = numpy_helper.from_array(array, "weight")
    return bytes(helper.make_model(helper.make_graph([], "g", [], [], [tensor])).SerializeToString())


def test_a_model_without_large_tensors_and_comments_stays_as_it_is() -> None:
    model = decoder().model("logits")
    assert onnx.ModelProto.FromString(short(model.SerializeToString())) == model


def test_comments_are_left_out() -> None:
    model = decoder().model("logits")
    plain = model.SerializeToString()
    model.graph.node[0].doc_string = "where it is from"
    model.graph.node[0].metadata_props.add(key="stack", value="a" * 5000)
    assert short(model.SerializeToString()) == plain


def test_large_values_are_left_out_and_small_ones_stay() -> None:
    (small,) = onnx.ModelProto.FromString(short(with_tensor(np.ones(8, np.int64)))).graph.initializer
    (large,) = onnx.ModelProto.FromString(short(with_tensor(np.ones((64, 64), np.float32)))).graph.initializer
    assert numpy_helper.to_array(small).tolist() == [1] * 8
    assert (list(large.dims), large.raw_data) == ([64, 64], b"")
    assert {entry.key: entry.value for entry in large.external_data} == {LENGTH_KEY: str(64 * 64 * 4)}
    assert MAX_VALUE_BYTES < 64 * 64 * 4


def test_a_file_that_ends_too_early_is_refused_wherever_it_ends() -> None:
    data = decoder(1).model("logits").SerializeToString()
    between = set(np.cumsum([len(part) for part in split(data)]))  # two fields of the outermost message
    for length in set(range(1, len(data))) - between:
        with pytest.raises(InvalidModel, match=r"model\.onnx is not an ONNX graph"):
            short(data[:length])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00", "begins no field"),
        (b"\x0b", "begins no field"),
        (b"\x3a", "before it is complete"),
        (b"\x3a\x05ab", "5 bytes where 2 are left"),
        (b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "are left"),
        (b"\xff" * 20, "before it is complete"),
        (b"\x3d\x00", "4 bytes where 1 are left"),
        (field(7, field(2, b"a\xffb")), "not UTF-8"),
    ],
)
def test_bytes_that_are_no_model_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidModel, match=reason):
        short(data)


def test_nesting_has_an_end() -> None:
    graph = b""
    for _ in range(60):
        graph = field(1, field(5, field(6, graph)))
    with pytest.raises(InvalidModel, match="deeper than 100"):
        short(field(7, graph))


def test_a_file_of_empty_nodes_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FIELDS", 1000)
    short(field(7, b"\x0a\x00" * 900))
    with pytest.raises(InvalidModel, match="more than 1000 nodes"):
        short(field(7, b"\x0a\x00" * 1001))


def test_a_file_of_names_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT_BYTES", 1000)
    with pytest.raises(InvalidModel, match="over 1000 bytes"):
        short(field(7, field(2, b"a" * 2000)))


@given(st.binary(max_size=200))
def test_any_bytes_are_outlined_or_refused(data: bytes) -> None:
    try:
        kept = short(data)
    except InvalidModel:
        return
    assert len(kept) <= len(data) + 100
