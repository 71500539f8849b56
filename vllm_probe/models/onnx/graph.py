"""A flat ONNX graph: subgraphs and functions are written out, values are followed to where they come from."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from vllm_probe.core.errors import InvalidModel

if TYPE_CHECKING:
    import onnx

Dims: TypeAlias = tuple[int | None, ...]
"""Dimensions of a value, null for those that are not fixed."""

_MAX_STEPS = 2_000_000
_MAX_WALK = 4096
_MAX_DEPTH = 32  # operators between a weight in the file and the product that uses it
_SHAPES = ("Shape", "Size", "ConstantOfShape", "Range")
_FIRST_ONLY = (
    "Reshape",
    "Expand",
    "Slice",
    "Unsqueeze",
    "Squeeze",
    "Tile",
    "Split",
    "Pad",
    "Dropout",
    "Flatten",
    "CastLike",
)


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A constant of the graph.

    Attributes:
        name: unique in the flat graph.
        dims: dimensions, none for a scalar.
        kind: `TensorProto.DataType`.
        bits: stored bits of an element.
        integers: its values where they are few whole numbers, else null.
    """

    name: str
    dims: tuple[int, ...]
    kind: int
    bits: int
    integers: tuple[int, ...] | None = None

    @property
    def num_elements(self) -> int:
        """Product of the dimensions."""
        return math.prod(self.dims)

    @property
    def nbytes(self) -> int:
        """Size in bytes; elements narrower than a byte are packed."""
        return -(-self.num_elements * self.bits // 8)


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operator.

    Attributes:
        op: operator type; those of other domains than ONNX's own as `domain:type`.
        inputs: names, empty where an optional one is left out.
        outputs: names.
        attributes: by name.
        is_taken: false in a branch that is left out because another one of the same `If` counts.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: "dict[str, onnx.AttributeProto]"
    is_taken: bool = True

    def integer(self, name: str, default: int = 0) -> int:
        """The whole number in the attribute `name`."""
        return int(self.attributes[name].i) if name in self.attributes else default

    def integers(self, name: str) -> tuple[int, ...]:
        """The whole numbers in the attribute `name`, none without it."""
        return tuple(self.attributes[name].ints) if name in self.attributes else ()

    def input(self, index: int) -> str:
        """Name of an input, empty when it is left out."""
        return self.inputs[index] if index < len(self.inputs) else ""


@dataclass(slots=True, eq=False)
class Graph:
    """Nodes in the order of the file, and what their names stand for.

    Attributes:
        source: path, for messages.
        nodes: every operator.
        tensors: constants by name.
        inputs: what the caller gives, with its dimensions.
        outputs: what the caller gets.
        dims: dimensions of values, as far as the file states them.
        producers: node that gives a value.
        consumers: nodes that take a value.
    """

    source: str
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    inputs: dict[str, Dims] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)
    dims: dict[str, Dims] = field(default_factory=dict)
    producers: dict[str, Node] = field(default_factory=dict)
    consumers: dict[str, list[Node]] = field(default_factory=lambda: defaultdict(list))
    _constants: "dict[str, Constant | None]" = field(default_factory=dict)
    _steps: int = 0

    def add(self, node: Node) -> None:
        """Appends `node`; a value that two nodes give is the later one's."""
        self.nodes.append(node)
        self.producers.update((name, node) for name in node.outputs if name)
        for name in dict.fromkeys(node.inputs):
            if name:
                self.consumers[name].append(node)

    def constant(self, name: str, depth: int = 0) -> "Constant | None":
        """The constant behind `name`, through what stores, moves, casts or dequantizes it; null for an activation."""
        if name not in self._constants:
            self._step()
            self._constants[name] = self._constant(name, depth)
        return self._constants[name]

    def _constant(self, name: str, depth: int) -> "Constant | None":
        if name in self.tensors:
            return Constant(self.tensors[name], self.tensors[name].dims, (self.tensors[name],))
        node, known = self.producers.get(name), list[Constant]()
        if node is None or depth > _MAX_DEPTH:
            return None
        for each in filter(None, _moved(node)):
            found = self.constant(each, depth + 1)
            if found is None:
                return None
            known.append(found)
        if not known:
            return None
        whole = max(known, key=lambda each: each.root.num_elements)
        stored = tuple(dict.fromkeys(tensor for each in known for tensor in each.stored))
        return Constant(whole.root, self._changed(node, whole.dims), stored)

    def behind(self, name: str, stops: Callable[[Node], bool]) -> Iterator[tuple[str, Node]]:
        """The values that flow into `name`, each with its node, nearest first; none behind a node that `stops`."""
        waiting, seen = [name], {name}
        for value in waiting:
            node = self.producers.get(value)
            if node is not None and len(waiting) < _MAX_WALK:
                self._step()
                yield value, node
                fresh = [] if stops(node) else [each for each in flowing(node) if each and each not in seen]
                seen.update(fresh)
                waiting.extend(fresh)

    def ahead(self, name: str, stops: Callable[[Node], bool]) -> Iterator[Node]:
        """The nodes that `name` flows into, nearest first; none ahead of a node that `stops`."""
        waiting, seen = [name], {name}
        for value in waiting:
            for node in self.consumers.get(value, ()) if len(waiting) < _MAX_WALK else ():
                self._step()
                yield node
                fresh = (
                    []
                    if stops(node) or node.op in _SHAPES
                    else [each for each in node.outputs if each and each not in seen]
                )
                seen.update(fresh)
                waiting.extend(fresh)

    def vector(self, name: str, depth: int = 0) -> Dims | None:
        """The whole numbers that `name` holds, null for each that only a run can tell; null when not even how many."""
        tensor, node = self.tensors.get(name), self.producers.get(name)
        if tensor is not None:
            return tensor.integers
        if node is None or depth > _MAX_DEPTH:
            return None
        self._step()
        if node.op == "Concat":
            parts = [self.vector(each, depth + 1) or (None,) for each in node.inputs[:_MAX_DEPTH]]
            return tuple(number for part in parts for number in part)[:_MAX_DEPTH]
        if node.op in ("Identity", "Cast", "Unsqueeze", "Squeeze"):
            return self.vector(node.input(0), depth + 1)
        return None

    def invalid(self, reason: str) -> InvalidModel:
        """The error for a graph that no model has."""
        return InvalidModel(f"{self.source}: {reason}", hint="export the model again")

    def _step(self) -> None:
        """Counts a step of following values.

        Raises:
            InvalidModel: too many, as only a graph made to be tangled takes.
        """
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise self.invalid(f"its values cannot be followed in {_MAX_STEPS} steps")

    def _changed(self, node: Node, dims: tuple[int, ...]) -> tuple[int, ...]:
        """Dimensions behind `node` of a constant that has `dims` before it."""
        if node.op == "Transpose":
            order = node.integers("perm") or tuple(reversed(range(len(dims))))
            return tuple(dims[axis] for axis in order) if sorted(order) == list(range(len(dims))) else dims
        if node.op == "Reshape":
            target = self.vector(node.input(1))
            if target and None not in target and all(size and size > 0 for size in target):
                return tuple(size or 0 for size in target)
        return dims


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant as a node takes it.

    Attributes:
        root: its largest tensor.
        dims: dimensions as taken.
        stored: every tensor that it is made of, scales and zero points too.
    """

    root: Tensor
    dims: tuple[int, ...]
    stored: tuple[Tensor, ...]


_KEEPS = ("Transpose", "Identity", "Cast", "CastLike", "Reshape", "Squeeze", "Unsqueeze", "Dropout", "Flatten")
_COMBINES = ("DequantizeLinear", "Mul", "Sub", "Add", "Div", "QuantizeLinear")


def _moved(node: Node) -> tuple[str, ...]:
    """The inputs that a constant behind `node` would be made of."""
    if node.op in _KEEPS:
        return node.inputs[:1]
    return node.inputs if node.op.rpartition(":")[2] in _COMBINES else ()


def flowing(node: Node) -> tuple[str, ...]:
    """The inputs of `node` whose numbers flow on: not shapes, axes and conditions."""
    if node.op in _FIRST_ONLY or node.op.startswith("Reduce"):
        return node.inputs[:1]
    if node.op in _SHAPES:
        return ()
    return node.inputs[1:] if node.op == "Where" else node.inputs[:1] if node.op.startswith("Gather") else node.inputs
