"""An ONNX model to a flat graph: bodies of `If`, `Loop` and `Scan` and calls of functions stand in line."""

from collections import ChainMap
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_probe.core.errors import InvalidModel
from vllm_probe.models.onnx.graph import Dims, Graph, Node
from vllm_probe.models.onnx.tensors import TensorReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import onnx

MAX_ITEMS = 300_000
_MAX_DEPTH = 24
_OWN = ("", "ai.onnx")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where nodes stand: what names mean there, the attributes of the call, and how deep it is."""

    names: "ChainMap[str, str]"
    prefix: str = ""
    attributes: "dict[str, onnx.AttributeProto]" = field(default_factory=dict)
    depth: int = 0
    is_taken: bool = True

    def resolve(self, name: str) -> str:
        """Name in the flat graph of what is called `name` here, empty for an input that is left out."""
        return self.names.get(name, self.prefix + name) if name else ""


class Expander:
    """Writes one model out.

    Attributes:
        graph: what it wrote so far.
        tensors: reader of its tensors.
    """

    def __init__(self, path: Path) -> None:
        self.graph, self.tensors = Graph(str(path)), TensorReader(path)
        self._counted = 0
        self._functions: dict[tuple[str, str, str], onnx.FunctionProto] = {}

    def write(self, model: "onnx.ModelProto") -> Graph:
        """The flat graph of `model`.

        Raises:
            InvalidModel: damaged tensors, nesting deeper than 24 bodies and calls, or more
                than `MAX_ITEMS` operators and tensors once all are in line.
        """
        self._functions = {(each.domain, each.name, getattr(each, "overload", "")): each for each in model.functions}
        graph = model.graph
        self.graph.inputs = {value.name: _dims_of(value) for value in graph.input}
        stated = (*graph.input, *graph.value_info, *graph.output)
        self.graph.dims = {value.name: _dims_of(value) for value in stated}
        place = _Place(ChainMap({name: name for name in self.graph.inputs}))
        self._body(graph, place)
        self.graph.outputs = [place.resolve(value.name) for value in graph.output]
        for tensor in self.graph.tensors:
            self.graph.inputs.pop(tensor, None)  # old files list initializers among the inputs
        return self.graph

    def _body(self, graph: "onnx.GraphProto", place: _Place) -> None:
        sparse = (each.values for each in graph.sparse_initializer)
        for tensor in (*graph.initializer, *sparse):
            self._tensor(tensor, tensor.name, place)
        self._nodes(graph.node, place)

    def _tensor(self, tensor: "onnx.TensorProto", name: str, place: _Place) -> None:
        self._count()
        unique = place.prefix + name
        place.names[name] = unique
        self.graph.tensors[unique] = self.tensors.read(tensor, unique)

    def _nodes(self, nodes: "Iterable[onnx.NodeProto]", place: _Place) -> None:
        for node in nodes:
            self._count()
            outputs = tuple(place.prefix + name if name else "" for name in node.output)
            inputs = tuple(place.resolve(name) for name in node.input)
            place.names.update((name, unique) for name, unique in zip(node.output, outputs, strict=True) if name)
            self._node(node, inputs, outputs, place)

    def _node(self, node: "onnx.NodeProto", inputs: tuple[str, ...], outputs: tuple[str, ...], place: _Place) -> None:
        attributes = {each.name: place.attributes.get(each.ref_attr_name, each) for each in node.attribute}
        op = node.op_type if node.domain in _OWN else f"{node.domain}:{node.op_type}"
        function = self._functions.get((node.domain, node.op_type, getattr(node, "overload", "")))
        if op == "Constant" and "value" in attributes and outputs:
            self.graph.tensors[outputs[0]] = self.tensors.read(attributes["value"].t, outputs[0])
        elif op == "Constant" and outputs and ("value_int" in attributes or "value_ints" in attributes):
            self._written(attributes, outputs[0])
        elif function is not None:
            self._call(function, replace(place, attributes=attributes), inputs, outputs)
        elif bodies := [attribute.g for attribute in attributes.values() if attribute.HasField("g")]:
            self._bodies(op, bodies, place, inputs, outputs)
        else:
            self.graph.add(Node(op, inputs, outputs, attributes, place.is_taken))

    def _written(self, attributes: "dict[str, onnx.AttributeProto]", name: str) -> None:
        """A constant whose whole numbers stand in an attribute."""
        import onnx

        listed = [attributes["value_int"].i] if "value_int" in attributes else list(attributes["value_ints"].ints)
        dims = [] if "value_int" in attributes else [len(listed)]
        tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.INT64, dims=dims, int64_data=listed)
        self.graph.tensors[name] = self.tensors.read(tensor, name)

    def _call(
        self, function: "onnx.FunctionProto", place: _Place, inputs: "Sequence[str]", outputs: "Sequence[str]"
    ) -> None:
        defaults = {each.name: each for each in function.attribute_proto}
        inside = self._inside(replace(place, names=ChainMap(), attributes=defaults | place.attributes))
        inside.names.update(zip_longest(function.input, inputs[: len(function.input)], fillvalue=""))
        self._nodes(function.node, inside)
        self._link([inside.resolve(name) for name in function.output], outputs, place)

    def _bodies(
        self, op: str, bodies: "list[onnx.GraphProto]", place: _Place, inputs: "Sequence[str]", outputs: "Sequence[str]"
    ) -> None:
        """The body of a loop once, as if it ran for one token; of the branches of an `If` the heaviest counts."""
        taken = max(bodies, key=lambda body: sum(len(node.input) for node in body.node)) if op == "If" else bodies[0]
        for body in bodies:
            inside = self._inside(replace(place, is_taken=place.is_taken and body is taken))
            inside.names.update((value.name, each) for value, each in zip(body.input, inputs, strict=False))
            self._body(body, inside)
            results = [inside.resolve(value.name) for value in body.output]
            if body is taken:
                self._link(results[1:] if op == "Loop" else results, outputs, place)

    def _inside(self, place: _Place) -> _Place:
        if place.depth == _MAX_DEPTH:
            raise self._invalid(f"bodies and functions are nested deeper than {_MAX_DEPTH}, or call themselves")
        return replace(place, names=place.names.new_child(), prefix=f"{self._counted}\0", depth=place.depth + 1)

    def _link(self, results: "Sequence[str]", outputs: "Sequence[str]", place: _Place) -> None:
        for result, output in zip(results, outputs, strict=False):
            if result and output:
                self.graph.add(Node("Identity", (result,), (output,), {}, place.is_taken))

    def _count(self) -> None:
        self._counted += 1
        if self._counted > MAX_ITEMS:
            raise self._invalid(f"more than {MAX_ITEMS} operators and tensors once functions are in line")

    def _invalid(self, reason: str) -> InvalidModel:
        return self.graph.invalid(reason)


def _dims_of(value: "onnx.ValueInfoProto") -> Dims:
    """Dimensions of a tensor, null for those that have no fixed size."""
    sizes = value.type.tensor_type.shape.dim
    return tuple(size.dim_value if size.HasField("dim_value") and size.dim_value > 0 else None for size in sizes)
