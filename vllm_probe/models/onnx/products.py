"""Which operators of a graph are linears, and which look rows of a table up."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from vllm_probe.models.onnx.graph import Constant, Graph, Node, Tensor

_MS = "com.microsoft:"


@dataclass(frozen=True, slots=True)
class _Form:
    """Inputs of an operator: activations, weight, scales and zero points of the weight, bias."""

    data: int
    weight: int
    beside: tuple[int, ...] = ()
    bias: int | None = None


_FORMS = {
    "MatMul": _Form(0, 1),
    "Gemm": _Form(0, 1, (), 2),
    "MatMulInteger": _Form(0, 1, (3,)),
    "QLinearMatMul": _Form(0, 3, (4, 5)),
    f"{_MS}DynamicQuantizeMatMul": _Form(0, 1, (2, 3), 4),
    f"{_MS}MatMulIntegerToFloat": _Form(0, 1, (3, 5), 6),
    f"{_MS}QGemm": _Form(0, 3, (4, 5), 6),
    f"{_MS}FusedMatMul": _Form(0, 1),
    f"{_MS}FusedGemm": _Form(0, 1, (), 2),
    f"{_MS}GemmFastGelu": _Form(0, 1, (), 2),
    f"{_MS}MatMulNBits": _Form(0, 1, (2, 3, 4), 5),
    f"{_MS}MatMulBnb4": _Form(0, 1, (2,)),
    f"{_MS}Attention": _Form(0, 1, (), 2),
    f"{_MS}QAttention": _Form(0, 1, (4, 7), 2),
    f"{_MS}PackedAttention": _Form(0, 1, (), 2),
    "Conv": _Form(0, 1, (), 2),
    "QLinearConv": _Form(0, 3, (4, 5), 8),
    "ConvInteger": _Form(0, 1, (3,)),
}
"""Operators that multiply activations by a weight.

https://onnx.ai/onnx/operators and https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

_FUSED = (f"{_MS}Attention", f"{_MS}QAttention", f"{_MS}PackedAttention")
_PACKED = (f"{_MS}MatMulNBits", f"{_MS}MatMulBnb4")
_PRODUCTS = ("MatMul", f"{_MS}FusedMatMul", "QLinearMatMul", "MatMulInteger", "Einsum")
_LOOKUPS = ("Gather", f"{_MS}GatherBlockQuantized")
_EMBEDS = (f"{_MS}EmbedLayerNormalization", f"{_MS}QEmbedLayerNormalization")


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """A linear: activations [..., k] times a weight.

    Attributes:
        node: its operator.
        k: input width.
        widths: output widths; several where one operator holds the weights of several linears.
        copies: weights that are multiplied at once, such as those of experts.
        bits: stored bits of a weight, without scales.
        root: tensor with the weight.
        stored: that tensor and those of its scales and zero points.
        bias: constants that are added to what it gives.
    """

    node: Node
    k: int
    widths: tuple[int, ...]
    copies: int
    bits: int
    root: Tensor
    stored: tuple[Tensor, ...]
    bias: tuple[Tensor, ...] = ()

    @property
    def n(self) -> int:
        """Output width, of all linears in it."""
        return sum(self.widths)

    @property
    def data(self) -> str:
        """Name of the activations."""
        return self.node.input(_FORMS[self.node.op].data)

    def split(self, widths: tuple[int, ...]) -> "Product":
        """The same where it stands for several linears."""
        return replace(self, widths=widths)


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows that are looked up.

    Attributes:
        indices: name of the row numbers.
        rows: rows of the table.
        width: numbers in a row.
        stored: its tensor, and those of its scales and zero points.
    """

    indices: str
    rows: int
    width: int
    stored: tuple[Tensor, ...]


def find_products(graph: Graph) -> dict[Node, Product]:
    """The linears of `graph` by their operator, in order.

    Raises:
        InvalidModel: a packed weight of another size than its attributes say.
    """
    found = ((node, _product(graph, node)) for node in graph.nodes if node.op in _FORMS)
    return {node: product for node, product in found if product is not None}


def multiplies_activations(node: Node, products: dict[Node, Product]) -> bool:
    """Whether `node` is a matrix product of two activations, as attention has them."""
    return node.op in _PRODUCTS and node not in products


def _product(graph: Graph, node: Node) -> Product | None:
    form = _FORMS[node.op]
    weight, activations = graph.constant(node.input(form.weight)), graph.constant(node.input(form.data))
    if weight is None and activations is not None and node.op in _PRODUCTS:
        weight, activations = activations, None
        shape = _turned(weight.dims)
    elif weight is None or activations is not None:
        return None
    else:
        shape = _shape(graph, node, weight)
    if shape is None or shape[0] <= 1 or not all(shape[1]):
        return None
    beside = [found for index in form.beside if (found := graph.constant(node.input(index)))]
    stored = dict.fromkeys((*weight.stored, *(tensor for each in beside for tensor in each.stored)))
    is_stack = node.op in _PRODUCTS and len(weight.dims) > 2
    return Product(
        node=node,
        k=shape[0],
        widths=shape[1],
        copies=prod(weight.dims[:-2]) if is_stack else 1,
        bits=node.integer("bits", 4) if node.op in _PACKED else weight.root.bits,
        root=weight.root,
        stored=tuple(stored),
        bias=_bias(graph, node, form),
    )


def _turned(dims: tuple[int, ...]) -> tuple[int, tuple[int, ...]] | None:
    """Input and output width of a weight that stands before the activations."""
    return (dims[-1], (dims[-2],)) if len(dims) > 1 else None


def _shape(graph: Graph, node: Node, weight: Constant) -> tuple[int, tuple[int, ...]] | None:
    """Input width and output widths."""
    dims = weight.dims
    if node.op in _PACKED:
        return _packed(graph, node, weight)
    if node.op.endswith(("Conv", "ConvInteger")):
        return _convolution(node, dims)
    if len(dims) == 1:
        return dims[0], (1,)
    if not dims:
        return None
    k, n = (dims[-1], dims[-2]) if node.integer("transB") else (dims[-2], dims[-1])
    if node.op not in _FUSED:
        return k, (n,)
    widths = node.integers("qkv_hidden_sizes") or (n // 3,) * 3
    if sum(widths) != n or min(widths) < 1:
        raise graph.invalid(f"{node.op} of {len(widths)} widths {widths[:3]} has a weight of {n} columns")
    return k, widths


def _packed(graph: Graph, node: Node, weight: Constant) -> tuple[int, tuple[int, ...]]:
    k, n, bits, block = node.integer("K"), node.integer("N"), node.integer("bits", 4), node.integer("block_size", 1)
    blocks = -(-k // block) if block > 0 else 0
    expected = n * blocks * (block * bits // 8) if node.op == _PACKED[0] else -(-k * n // 2)
    if min(k, n) < 1 or not 1 <= bits <= 8 or block < 1 or expected != weight.root.nbytes:
        shown = f"K {k}, N {n}, {bits} bits in blocks of {block}"
        raise graph.invalid(f"{node.op} with {shown} has a weight of {weight.root.nbytes} bytes")
    return k, (n,)


def _convolution(node: Node, dims: tuple[int, ...]) -> tuple[int, tuple[int, ...]] | None:
    """A convolution whose windows do not overlap is a linear over each window."""
    kernel = dims[2:]
    strides = node.integers("strides") or (1,) * len(kernel)
    if node.integer("group", 1) != 1 or any(node.integers("pads")) or len(dims) < 3 or strides != kernel:
        return None
    return dims[1] * prod(kernel), (dims[0],)


def _bias(graph: Graph, node: Node, form: _Form) -> tuple[Tensor, ...]:
    own = graph.constant(node.input(form.bias)) if form.bias is not None else None
    if own is not None:
        return own.stored
    adds = [each for output in node.outputs for each in graph.consumers.get(output, ()) if each.op == "Add"]
    found = (graph.constant(name) for each in adds for name in each.inputs)
    return tuple(tensor for each in found if each is not None for tensor in each.stored)


def find_tables(graph: Graph) -> list[Table]:
    """The tables that rows are looked up in, each once."""
    found = {table.stored[0]: table for node in graph.nodes for table in _tables(graph, node)}
    return list(found.values())


def _tables(graph: Graph, node: Node) -> Iterator[Table]:
    """The constants of two dimensions in which `node` looks up rows that only a run can tell."""
    lookups: list[tuple[int, int]] = []
    beside: tuple[int, ...] = ()
    if node.op in _LOOKUPS and node.integer("axis") == node.integer("gather_axis") == 0:
        lookups, beside = [(0, 1)], (2, 3) if node.op != "Gather" else ()
    elif node.op in _EMBEDS:
        lookups = [(2, 0), (3, 7), (4, 1)]
    for table, indices in lookups:
        found = graph.constant(node.input(table))
        if found is None or len(found.dims) != 2 or graph.constant(node.input(indices)) is not None:
            continue
        scales = [each for index in beside if (each := graph.constant(node.input(index)))]
        stored = dict.fromkeys((found.root, *found.stored, *(tensor for each in scales for tensor in each.stored)))
        width = found.dims[1] * (8 // node.integer("bits", 4) if beside and found.root.bits == 8 else 1)
        yield Table(node.input(indices), found.dims[0], width, tuple(stored))
