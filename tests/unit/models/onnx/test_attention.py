"""Heads, their width, windows and causality are told from fused operators and from attention that is written out."""

from typing import Any

import pytest
from onnx import helper

from tests.unit.models.onnx.graphs import IDS, MS, Builder, decoder, find_in, shapes
from vllm_probe.models.onnx.attention import Attention, hides_later_tokens


def only(graph: Builder, end: str, inputs: Any = None) -> Attention:
    (found,) = graph.find(end, inputs).attention
    return found


def heads(found: Attention) -> tuple[int | None, int | None, int | None]:
    return found.num_heads, found.num_kv_heads, found.head_dim


@pytest.mark.parametrize(
    ("kind", "domain", "attributes", "expected"),
    [
        ("MultiHeadAttention", MS, {"num_heads": 4}, (4, 4, 32)),
        ("GroupQueryAttention", MS, {"num_heads": 4, "kv_num_heads": 2}, (4, 2, 32)),
        ("SparseAttention", MS, {"num_heads": 4, "kv_num_heads": 2}, (4, 2, 32)),
        ("PackedMultiHeadAttention", MS, {"num_heads": 4}, (4, 4, 32)),
        ("Attention", "", {"q_num_heads": 4, "kv_num_heads": 2, "is_causal": 1}, (4, 2, 32)),
    ],
)
def test_fused_operators_tell_their_heads(
    kind: str, domain: str, attributes: dict[str, int], expected: tuple[int, int, int]
) -> None:
    graph = Builder()
    keys = expected[1] * 32
    sources = [graph.linear("x", 64, width) for width in (128, keys, keys)]
    mixed = graph.op(kind, *sources, domain=domain, **attributes)
    found = only(graph, graph.linear(mixed, 128, 64))
    assert heads(found) == expected
    assert found.is_causal is (kind in ("GroupQueryAttention", "SparseAttention") or "is_causal" in attributes)


def test_an_attention_that_holds_its_weights_tells_its_heads() -> None:
    graph = Builder()
    mixed = graph.op("Attention", "x", graph.weight(64, 192), "", domain=MS, num_heads=4, unidirectional=1)
    found = only(graph, graph.linear(mixed, 64, 64))
    assert (heads(found), found.is_causal) == ((4, 4, 16), True)


def test_queries_keys_and_values_of_one_linear_are_told_apart() -> None:
    graph = Builder()
    packed = graph.linear("x", 64, 256)
    mixed = graph.op("GroupQueryAttention", packed, "", "", "", "", domain=MS, num_heads=4, kv_num_heads=2)
    found = graph.find(graph.linear(mixed, 128, 64))
    assert heads(found.attention[0]) == (4, 2, 32)
    assert shapes(found) == [(64, 128, 1, 1), (64, 64, 1, 1), (64, 64, 1, 1), (128, 64, 1, 1)]


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_attention_written_out_tells_heads_from_its_reshapes(kv_heads: int) -> None:
    graph = Builder()
    queries, keys, values = (
        graph.heads(graph.linear("x", 64, width), 32) for width in (128, 32 * kv_heads, 32 * kv_heads)
    )
    if kv_heads < 4:
        shape = graph.integers(1, 4, 1, 32)
        keys, values = graph.op("Expand", keys, shape), graph.op("Expand", values, shape)
    found = graph.find(graph.linear(graph.attend(queries, keys, values, hidden=128), 128, 64))
    assert [heads(each) for each in found.attention] == [(4, kv_heads, 32)]
    assert [each.name for each in found.stated(None, is_tied=True)][-1] == "o"


def test_scores_are_no_linears_and_other_softmaxes_no_attention() -> None:
    graph = Builder()
    routed = graph.op("Softmax", graph.linear("x", 64, 8))
    found = graph.find(graph.linear(graph.op("TopK", routed, graph.integers(2), outputs=2), 8, 64))
    assert found.attention == ()


def test_a_shape_that_only_a_run_can_tell_still_has_its_fixed_part() -> None:
    graph = Builder()
    size = graph.op("Gather", graph.op("Shape", "x"), graph.integers(1), axis=0)
    target = graph.op("Concat", graph.integers(0), size, graph.integers(-1), graph.integers(16), axis=0)
    parts = [graph.op("Transpose", graph.op("Reshape", graph.linear("x", 64, 64), target)) for _ in range(3)]
    assert heads(only(graph, graph.linear(graph.attend(*parts, hidden=64), 64, 64))) == (4, 4, 16)


def test_dimensions_that_the_file_states_tell_heads_where_no_reshape_does() -> None:
    graph = Builder()
    parts = [graph.op("Split", graph.linear("x", 64, 64)) for _ in range(3)]
    end = graph.linear(graph.attend(*parts, hidden=64), 64, 64)
    model = graph.model(end)
    model.graph.value_info.append(helper.make_tensor_value_info(parts[0], 1, ["b", 4, "t", 16]))
    assert [heads(each) for each in find_in(model).attention] == [(4, 4, 16)]


def test_a_window_is_that_of_the_operator() -> None:
    graph = Builder()
    sources = [graph.linear("x", 64, width) for width in (128, 64, 64)]
    stated = {"num_heads": 4, "kv_num_heads": 2, "local_window_size": 512}
    assert (
        only(graph, graph.linear(graph.op("GroupQueryAttention", *sources, domain=MS, **stated), 128, 64)).window == 512
    )


def test_what_keeps_rotary_positions_is_no_weight() -> None:
    graph = Builder()
    sources = [graph.linear("x", 64, width) for width in (128, 64, 64)]
    angles = [graph.weight(4096, 16), graph.weight(4096, 16)]
    mixed = graph.op(
        "GroupQueryAttention", *sources, "", "", "", "", *angles, domain=MS, num_heads=4, kv_num_heads=2, do_rotary=1
    )
    found = graph.find(graph.linear(mixed, 128, 64))
    assert found.num_angles == 4096
    assert sum(each.num_elements for each in found.parameters) == 64 * (128 + 64 + 64) + 128 * 64
    graph = Builder()
    turned = graph.op("Cos", graph.op("Mul", graph.op("Cast", "positions", to=1), graph.weight(16)))
    scaled = graph.op("Mul", graph.op("MatMul", "x", graph.weight(64, 16)), turned)
    assert [each.num_elements for each in graph.find(scaled).parameters] == [64 * 16]


def test_a_causal_mask_is_a_triangle_or_a_comparison_of_positions() -> None:
    def graph_with(kind: str, *, compares: bool) -> bool:
        graph = Builder()
        positions = [graph.op("Unsqueeze", graph.op("Range", "a", "b", "c"), graph.integers(axis)) for axis in (0, 1)]
        mask = graph.op(kind, *positions) if compares else graph.op(kind, positions[0], graph.integers(0))
        return hides_later_tokens(graph.find(graph.op("Where", mask, "x", "x")).graph)

    assert graph_with("LessOrEqual", compares=True)
    assert graph_with("Greater", compares=True)
    assert graph_with("Trilu", compares=False)
    assert not graph_with("GreaterOrEqual", compares=False)
    assert not graph_with("Equal", compares=True)


def test_every_layer_of_a_decoder_is_found() -> None:
    found = decoder(3).find("logits", IDS)
    assert [heads(each) for each in found.attention] == [(4, 2, 32)] * 3
    assert found.feed_forward == (192, True)
