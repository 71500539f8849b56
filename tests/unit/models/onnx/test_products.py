"""Every operator that multiplies by a weight is a linear with its widths and bytes, and no other one is."""

from typing import Any

import pytest
from onnx import TensorProto

from tests.unit.models.onnx.graphs import MS, Builder, shapes
from vllm_probe.core.errors import InvalidModel

U8, I8, F16 = TensorProto.UINT8, TensorProto.INT8, TensorProto.FLOAT16


def only(graph: Builder, end: str) -> tuple[int, int, int, int]:
    """Widths, bits and bytes of the one linear."""
    (linear,) = graph.find(end).stated(None, is_tied=True)
    return linear.k, linear.n, linear.bits, linear.nbytes


def test_plain_products() -> None:
    graph = Builder()
    assert only(graph, graph.op("MatMul", "x", graph.weight(64, 32, kind=F16))) == (64, 32, 16, 64 * 32 * 2)
    graph = Builder()
    assert only(graph, graph.op("Gemm", "x", graph.weight(32, 64), graph.weight(32), transB=1)) == (64, 32, 32, 8192)
    graph = Builder()
    assert only(graph, graph.op("Gemm", "x", graph.weight(64, 32))) == (64, 32, 32, 8192)
    graph = Builder()
    assert only(graph, graph.op("MatMul", graph.weight(32, 64), "x")) == (64, 32, 32, 8192)
    graph = Builder()
    assert only(graph, graph.op("MatMul", "x", graph.weight(64))) == (64, 1, 32, 256)
    graph = Builder()
    assert only(graph, graph.op("FusedMatMul", "x", graph.weight(32, 64), domain=MS, transB=1)) == (64, 32, 32, 8192)


def test_a_weight_is_followed_through_what_moves_casts_and_dequantizes_it() -> None:
    graph = Builder()
    scale, zero = graph.weight(32), graph.weight(32, kind=I8)
    weight = graph.op("DequantizeLinear", graph.weight(32, 64, kind=I8), scale, zero, axis=0)
    turned = graph.op("Transpose", graph.op("Cast", weight, to=TensorProto.FLOAT16), perm=[1, 0])
    assert only(graph, graph.op("MatMul", "x", turned)) == (64, 32, 8, 32 * 64 + 32 * 4 + 32)
    graph = Builder()
    flat = graph.op("Reshape", graph.weight(64 * 32), graph.integers(64, 32))
    assert only(graph, graph.op("MatMul", "x", flat)) == (64, 32, 32, 8192)


def test_packed_weights_count_scales_and_zero_points() -> None:
    graph = Builder()
    packed = graph.weight(32, 2, 16, kind=U8)
    parts = [graph.weight(64, kind=F16), graph.weight(32, 1, kind=U8)]
    end = graph.op("MatMulNBits", "x", packed, *parts, domain=MS, K=64, N=32, bits=4, block_size=32)
    assert only(graph, end) == (64, 32, 4, 32 * 32 + 128 + 32)
    graph = Builder()
    packed = graph.weight(32, 1, 50, kind=U8)
    end = graph.op("MatMulNBits", "x", packed, graph.weight(32), domain=MS, K=50, N=32, bits=8, block_size=64)
    with pytest.raises(InvalidModel, match="K 50, N 32, 8 bits in blocks of 64 has a weight of 1600 bytes"):
        graph.find(end)


@pytest.mark.parametrize(
    "attributes", [{"K": 0}, {"N": -1}, {"bits": 0}, {"bits": 64}, {"block_size": 0}, {"K": 1 << 62}]
)
def test_packed_weights_that_contradict_their_attributes_are_refused(attributes: dict[str, int]) -> None:
    graph = Builder()
    stated = {"K": 64, "N": 32, "bits": 4, "block_size": 32, **attributes}
    end = graph.op("MatMulNBits", "x", graph.weight(32, 2, 16, kind=U8), graph.weight(64), domain=MS, **stated)
    with pytest.raises(InvalidModel, match="MatMulNBits with K"):
        graph.find(end)


def test_integer_products_count_their_scales() -> None:
    graph = Builder()
    rows = graph.op("DynamicQuantizeLinear", "x", outputs=3)
    zero = graph.weight(32, kind=I8)
    assert only(graph, graph.op("MatMulInteger", rows, graph.weight(64, 32, kind=I8), "", zero)) == (64, 32, 8, 2080)
    graph = Builder()
    weight, scale, zero = graph.weight(64, 32, kind=U8), graph.weight(32), graph.weight(32, kind=U8)
    end = graph.op("QLinearMatMul", "x", "s", "z", weight, scale, zero, "t", "y")
    assert only(graph, end) == (64, 32, 8, 2048 + 128 + 32)
    graph = Builder()
    weight, scale, zero = graph.weight(64, 32, kind=U8), graph.weight(32), graph.weight(32, kind=U8)
    end = graph.op("DynamicQuantizeMatMul", "x", weight, scale, zero, domain=MS)
    assert only(graph, end) == (64, 32, 8, 2048 + 128 + 32)
    graph = Builder()
    weight, scale, zero = graph.weight(32, 64, kind=I8), graph.weight(32), graph.weight(32, kind=I8)
    end = graph.op("QGemm", "x", "s", "z", weight, scale, zero, domain=MS, transB=1)
    assert only(graph, end) == (64, 32, 8, 2048 + 128 + 32)


def test_a_convolution_is_a_linear_where_its_windows_do_not_overlap() -> None:
    patches = Builder()
    end = patches.op("Conv", "x", patches.weight(128, 3, 16, 16), strides=[16, 16])
    assert only(patches, end) == (768, 128, 32, 128 * 768 * 4)
    points = Builder()
    assert only(points, points.op("Conv", "x", points.weight(32, 64, 1))) == (64, 32, 32, 8192)
    for attributes in ({"pads": [1, 1]}, {"group": 3}, {"strides": [1]}):
        other = Builder()
        stated: dict[str, Any] = {"strides": [3], **attributes}
        end = other.op("Conv", "x", other.weight(32, 64, 3), **stated)
        found = other.find(end)
        assert (shapes(found), sum(each.nbytes for each in found.parameters)) == ([], 32 * 64 * 3 * 4)


def test_products_of_activations_and_outer_products_are_no_linears() -> None:
    graph = Builder()
    square = graph.op("MatMul", "x", graph.op("Transpose", "x", perm=[0, 2, 1]))
    angles = graph.op("MatMul", graph.weight(1, 32, 1), square)
    assert shapes(graph.find(angles)) == []
    folded = Builder()
    both = folded.op("MatMul", folded.weight(64, 32), folded.weight(32, 16))
    assert shapes(folded.find(folded.op("Add", "x", both))) == []


def test_a_weight_that_serves_twice_is_stored_once() -> None:
    graph = Builder()
    weight = graph.weight(64, 64)
    end = graph.op("MatMul", graph.op("MatMul", "x", weight), weight)
    found = graph.find(end)
    assert shapes(found) == [(64, 64, 1, 2)]
    assert sum(each.nbytes for each in found.parameters) == 64 * 64 * 4


def test_stacked_weights_count_as_many_linears() -> None:
    graph = Builder()
    assert shapes(graph.find(graph.op("MatMul", "x", graph.weight(8, 64, 32)))) == [(64, 32, 8, 8)]


def test_a_fused_attention_holds_three_linears() -> None:
    graph = Builder()
    end = graph.op("Attention", "x", graph.weight(64, 192), graph.weight(192), domain=MS, num_heads=4)
    assert shapes(graph.find(end)) == [(64, 64, 1, 1)] * 3
    graph = Builder()
    widths: dict[str, Any] = {"num_heads": 4, "qkv_hidden_sizes": [64, 64, 128]}
    end = graph.op("Attention", "x", graph.weight(64, 256), graph.weight(256), domain=MS, **widths)
    assert [shape[1] for shape in shapes(graph.find(end))] == [64, 64, 128]
    graph = Builder()
    end = graph.op("Attention", "x", graph.weight(64, 100), "", domain=MS, num_heads=4, qkv_hidden_sizes=[64, 64, 64])
    with pytest.raises(InvalidModel, match="has a weight of 100 columns"):
        graph.find(end)
