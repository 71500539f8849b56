"""Functions and bodies are written out in line, each once where it counts, and never without an end."""

import onnx
import pytest
from onnx import TensorProto, helper

from tests.unit.models.onnx.graphs import IDS, Builder, decoder, find_in, shapes
from vllm_probe.core.errors import InvalidModel
from vllm_probe.models.onnx import expand


def function(name: str, nodes: list[onnx.NodeProto], attributes: tuple[str, ...] = ()) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["x", "w"], ["y"], nodes, opsets, list(attributes))


def test_a_function_counts_at_each_call_with_the_weights_of_that_call() -> None:
    graph = Builder()
    graph.functions.append(function("Linear", [helper.make_node("MatMul", ["x", "w"], ["y"])]))
    first = graph.op("Linear", "x", graph.weight(64, 32), domain="local")
    second = graph.op("Linear", first, graph.weight(32, 16), domain="local")
    assert shapes(graph.find(second)) == [(64, 32, 1, 1), (32, 16, 1, 1)]


def test_attributes_of_a_call_reach_the_operators_of_its_function() -> None:
    inner = helper.make_node("Gemm", ["x", "w"], ["y"])
    reference = inner.attribute.add(name="transB", ref_attr_name="turned", type=onnx.AttributeProto.INT)
    assert reference.ref_attr_name == "turned"
    graph = Builder()
    graph.functions.append(function("Linear", [inner], ("turned",)))
    graph.op("Linear", "x", graph.weight(32, 64), domain="local", turned=1)
    end = graph.op("Linear", "x", graph.weight(64, 32), domain="local", turned=0)
    assert shapes(graph.find(end)) == [(64, 32, 2, 2)]


def test_a_function_that_calls_itself_is_refused() -> None:
    graph = Builder()
    graph.functions.append(function("Loops", [helper.make_node("Loops", ["x", "w"], ["y"], domain="local")]))
    end = graph.op("Loops", "x", "x", domain="local")
    with pytest.raises(InvalidModel, match="nested deeper than 24, or call themselves"):
        graph.find(end)


def test_functions_that_double_at_each_call_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expand, "MAX_ITEMS", 10_000)
    graph = Builder()
    for level in range(20):
        twice = [helper.make_node(f"F{level + 1}", ["x", "w"], [name], domain="local") for name in ("a", "y")]
        graph.functions.append(function(f"F{level}", twice))
    graph.functions.append(function("F20", [helper.make_node("Identity", ["x"], ["y"])]))
    end = graph.op("F0", "x", "x", domain="local")
    with pytest.raises(InvalidModel, match="more than 10000 operators"):
        graph.find(end)


def branch(name: str, *nodes: onnx.NodeProto, initializers: tuple[onnx.TensorProto, ...] = ()) -> onnx.GraphProto:
    end = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    return helper.make_graph(list(nodes), name, [], [end], list(initializers))


def test_of_two_branches_that_share_their_weights_one_counts() -> None:
    model = decoder(1).model("logits", IDS)
    whole = helper.make_graph(list(model.graph.node), "body", [], list(model.graph.output))
    other = onnx.GraphProto()
    other.CopyFrom(whole)
    flag = helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1])
    choice = helper.make_node("If", ["use_cache_branch"], ["result"], then_branch=whole, else_branch=other)
    result = helper.make_tensor_value_info("result", TensorProto.FLOAT, None)
    merged = helper.make_graph([choice], "merged", [*model.graph.input, flag], [result], list(model.graph.initializer))
    both = helper.make_model(merged, opset_imports=list(model.opset_import))
    assert shapes(find_in(both)) == shapes(find_in(model))
    assert len(find_in(both).attention) == 1


def test_weights_of_a_branch_that_does_not_count_are_stored_all_the_same() -> None:
    graph = Builder()
    small, large = graph.weight(64, 8), graph.weight(64, 640)
    light = branch("light", helper.make_node("MatMul", ["x", small], ["a"]))
    heavy = branch("heavy", helper.make_node("MatMul", ["x", large], ["b"]), helper.make_node("Relu", ["b"], ["c"]))
    end = graph.op("If", "flag", then_branch=light, else_branch=heavy)
    found = graph.find(end, {"x": ["b", "t", 64], "flag": [1]})
    assert sorted(shapes(found)) == [(64, 8, 1, 0), (64, 640, 1, 1)]


def test_the_body_of_a_loop_counts_once() -> None:
    graph = Builder()
    weight = graph.weight(64, 64)
    step = helper.make_node("MatMul", ["state", weight], ["next"])
    names = [("i", TensorProto.INT64), ("more", TensorProto.BOOL), ("state", TensorProto.FLOAT)]
    inputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in names]
    same = helper.make_node("Identity", ["more"], ["again"])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("again", "next")]
    body = helper.make_graph([step, same], "body", inputs, ends)
    end = graph.linear(graph.op("Loop", "", "", "x", body=body), 64, 32)
    assert shapes(graph.find(end)) == [(64, 64, 1, 1), (64, 32, 1, 1)]


def test_bodies_have_an_end() -> None:
    nested = branch("leaf", helper.make_node("Relu", ["x"], ["y"]))
    for _ in range(26):
        nested = branch("b", helper.make_node("If", ["flag"], ["y"], then_branch=nested))
    graph = Builder()
    end = graph.op("If", "flag", then_branch=nested)
    with pytest.raises(InvalidModel, match="deeper than"):
        graph.find(end, {"x": ["b", "t", 64], "flag": [1]})


def test_values_that_go_round_in_a_circle_do_not_hang() -> None:
    graph = Builder()
    graph.nodes += [
        helper.make_node("MatMul", ["x", "c"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"]),
        helper.make_node("Softmax", ["b"], ["s"]),
        helper.make_node("MatMul", ["s", "a"], ["c"]),
    ]
    assert shapes(graph.find("c")) == []


def test_a_graph_without_operators_is_refused() -> None:
    with pytest.raises(InvalidModel, match="no operators"):
        Builder().find("x")


def test_old_files_list_initializers_among_the_inputs() -> None:
    graph = Builder()
    weight = graph.weight(64, 32)
    end = graph.op("MatMul", "x", weight)
    found = graph.find(end, {"x": ["b", "t", 64], weight: [64, 32]})
    assert (shapes(found), list(found.graph.inputs)) == ([(64, 32, 1, 1)], ["x"])
