"""Small ONNX graphs, built node by node."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from vllm_probe.models.onnx.findings import Findings
from vllm_probe.models.onnx.reader import read_graph

HERE = Path("model.onnx")
MS = "com.microsoft"


class Builder:
    """Collects nodes and initializers of one graph."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.functions: list[onnx.FunctionProto] = []
        self._count = 0

    def weight(self, *dims: int, kind: int = TensorProto.FLOAT, name: str = "") -> str:
        """An initializer whose values are nowhere, as in a file with external data that is not there."""
        self._count += 1
        name = name or f"weight_{self._count}"
        tensor = TensorProto(name=name, data_type=kind, dims=dims, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="weights.bin")
        self.initializers.append(tensor)
        return name

    def integers(self, *values: int) -> str:
        self._count += 1
        self.initializers.append(numpy_helper.from_array(np.array(values, np.int64), f"integers_{self._count}"))
        return f"integers_{self._count}"

    def op(self, kind: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Any) -> str:
        self._count += 1
        names = [f"{kind}_{self._count}"] + [f"{kind}_{self._count}_{index}" for index in range(1, outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, domain=domain, **attributes))
        return names[0]

    def linear(self, name: str, k: int, n: int) -> str:
        return self.op("MatMul", name, self.weight(k, n))

    def heads(self, name: str, size: int) -> str:
        """`name` in heads of that width, the heads before the tokens."""
        return self.op("Transpose", self.op("Reshape", name, self.integers(0, 0, -1, size)), perm=[0, 2, 1, 3])

    def attend(self, *parts: str, hidden: int) -> str:
        """Attention written out over queries, keys and values in heads."""
        queries, keys, values = parts
        scores = self.op("MatMul", queries, self.op("Transpose", keys, perm=[0, 1, 3, 2]))
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), values)
        return self.op("Reshape", self.op("Transpose", mixed, perm=[0, 2, 1, 3]), self.integers(0, 0, hidden))

    def model(self, output: str, inputs: Mapping[str, Sequence[Any]] | None = None) -> onnx.ModelProto:
        given = inputs or {"x": ["batch", "tokens", 64]}
        values = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT if len(dims) > 2 else TensorProto.INT64, dims)
            for name, dims in given.items()
        ]
        end = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "main", values, [end], self.initializers)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1), helper.make_opsetid("local", 1)]
        return helper.make_model(graph, opset_imports=opsets, functions=self.functions)

    def find(self, output: str, inputs: Mapping[str, Sequence[Any]] | None = None) -> Findings:
        return find_in(self.model(output, inputs))


def find_in(model: onnx.ModelProto) -> Findings:
    return read_graph(memoryview(model.SerializeToString()), HERE)


def shapes(found: Findings) -> list[tuple[int, int, int, int]]:
    """Widths, stored and used copies of every linear."""
    return [(each.k, each.n, each.stored, each.active) for each in found.stated(None, is_tied=found.ties)]


def decoder(layers: int = 2, *, tied: bool = True) -> Builder:
    """A decoder of width 64, 4 query heads, 2 key/value heads of 32 and a vocabulary of 500, that gives `logits`."""
    graph = Builder()
    table = graph.weight(500, 64, name="embedding")
    state = graph.op("Gather", table, "ids")
    for _ in range(layers):
        queries, keys, values = (graph.linear(state, 64, width) for width in (128, 64, 64))
        mixed = graph.op(
            "GroupQueryAttention", queries, keys, values, "", "", domain=MS, outputs=3, num_heads=4, kv_num_heads=2
        )
        state = graph.op("Add", state, graph.linear(mixed, 128, 64))
        gate = graph.op("Sigmoid", graph.linear(state, 64, 192))
        state = graph.op("Add", state, graph.linear(graph.op("Mul", gate, graph.linear(state, 64, 192)), 192, 64))
    weight = graph.op("Transpose", table, perm=[1, 0]) if tied else graph.weight(64, 500)
    graph.nodes.append(helper.make_node("MatMul", [state, weight], ["logits"]))
    return graph


IDS: Mapping[str, Sequence[Any]] = {"ids": ["batch", "tokens"]}
