"""What the attention of a graph says of heads, in fused operators and written out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from vllm_probe.models.onnx.graph import Dims, Graph, Node, Tensor
from vllm_probe.models.onnx.products import Product, multiplies_activations

_MS = "com.microsoft:"
_SOFTMAX = ("Softmax", f"{_MS}QLinearSoftmax")
_NEAR = 64  # operators between counted positions and their comparison
_WHOLE = (f"{_MS}Attention", f"{_MS}QAttention", f"{_MS}PackedAttention")
_FUSED = {
    "Attention": ("q_num_heads", "kv_num_heads", "is_causal"),
    f"{_MS}Attention": ("num_heads", "num_heads", "unidirectional"),
    f"{_MS}QAttention": ("num_heads", "num_heads", "unidirectional"),
    f"{_MS}PackedAttention": ("num_heads", "num_heads", ""),
    f"{_MS}MultiHeadAttention": ("num_heads", "num_heads", "unidirectional"),
    f"{_MS}PackedMultiHeadAttention": ("num_heads", "num_heads", ""),
    f"{_MS}DecoderMaskedMultiHeadAttention": ("num_heads", "num_heads", "unidirectional"),
    f"{_MS}GroupQueryAttention": ("num_heads", "kv_num_heads", "unidirectional"),
    f"{_MS}SparseAttention": ("num_heads", "kv_num_heads", "unidirectional"),
}
"""Fused operators to the attributes with query heads, key/value heads and causality."""

_ALWAYS_CAUSAL = (f"{_MS}GroupQueryAttention", f"{_MS}SparseAttention", f"{_MS}DecoderMaskedMultiHeadAttention")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One attention of the graph; null is what it does not tell.

    Attributes:
        num_heads: query heads.
        num_kv_heads: key/value heads.
        head_dim: width of a query or key head.
        window: tokens that a token sees, null without a limit.
        is_causal: whether the operator itself hides later tokens.
        queries: linear of the queries.
        keys: linear of the keys.
        values: linear of the values.
        output: linear behind it.
    """

    num_heads: int | None
    num_kv_heads: int | None
    head_dim: int | None
    window: int | None
    is_causal: bool
    queries: Product | None
    keys: Product | None
    values: Product | None
    output: Product | None

    @property
    def packed(self) -> tuple[int, ...]:
        """Output widths of the queries' linear where it gives keys and values too; empty where it does not."""
        if self.queries is None or self.queries is not self.keys or None in (self.num_heads, self.num_kv_heads):
            return ()
        keys = (self.num_kv_heads or 0) * (self.head_dim or 0)
        widths = ((self.num_heads or 0) * (self.head_dim or 0), keys, keys)
        return widths if sum(widths) == self.queries.n else ()


def find_attention(graph: Graph, products: dict[Node, Product]) -> list[Attention]:
    """Every attention that counts, in order: fused, or two products of activations around a softmax."""
    found = [_fused(graph, node, products) for node in graph.nodes if node.is_taken and node.op in _FUSED]
    plain = (node for node in graph.nodes if node.is_taken and node.op in _SOFTMAX)
    return found + [each for node in plain if (each := _written_out(graph, node, products))]


def _fused(graph: Graph, node: Node, products: dict[Node, Product]) -> Attention:
    names = _FUSED[node.op]
    heads, kv_heads = (node.integer(name) or None for name in names[:2])
    first = node.input(0)
    sources = [products.get(node)] * 3
    if node.op not in _WHOLE:
        sources = [_source(graph, node.input(index) or first, products) for index in range(3)]
    size = _split_width(graph, first, products) if heads is None else None
    window = node.integer("local_window_size", -1)
    causal = node.op in _ALWAYS_CAUSAL or bool(node.integer(names[2]))
    found = _attention(sources, (heads, kv_heads, size), _following(graph, node, products))
    return replace(found, window=window if window > 0 else None, is_causal=causal)


def _written_out(graph: Graph, softmax: Node, products: dict[Node, Product]) -> Attention | None:
    """The attention whose weights `softmax` makes; null for another softmax."""

    def multiplies(node: Node) -> bool:
        return multiplies_activations(node, products)

    scores = _nearest_behind(graph, softmax.input(0), products, multiplies)
    following = graph.ahead(next(iter(softmax.outputs), ""), lambda node: node in products or multiplies(node))
    context = next((node for node in following if node in products or multiplies(node)), None)
    if scores is None or context is None or context in products:
        return None
    keys, values = (3, 3) if scores.op == "QLinearMatMul" else (1, 1)
    sides = (scores.input(0), scores.input(keys), context.input(values))
    size = _split_width(graph, sides[0], products) or _split_width(graph, sides[1], products)
    sources = [_source(graph, side, products) for side in sides]
    return _attention(sources, (None, None, size), _following(graph, context, products))


def _following(graph: Graph, node: Node, products: dict[Node, Product]) -> Product | None:
    """The nearest linear ahead of `node`."""
    ahead = graph.ahead(next(iter(node.outputs), ""), products.__contains__)
    return next((products[each] for each in ahead if each in products), None)


def _attention(
    sources: list[Product | None], known: tuple[int | None, int | None, int | None], output: Product | None
) -> Attention:
    """Heads from widths: the output projection takes heads x head_dim, keys have key/value heads x head_dim columns."""
    (queries, keys, values), (heads, kv_heads, size) = sources, known
    is_packed = queries is not None and queries is keys
    wide = output.k if output else queries.n if queries and not is_packed else None
    if heads and queries and not is_packed:
        size = queries.n // heads
    elif heads and wide:
        size = wide // heads
    heads = heads or _ratio(wide, size)
    if kv_heads is None and keys and size:
        rest = keys.n - (heads or 0) * size if is_packed else keys.n
        kv_heads = _ratio(rest, size * (2 if keys is values else 1))
    return Attention(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=size,
        window=None,
        is_causal=False,
        queries=queries,
        keys=keys,
        values=values,
        output=output,
    )


def _ratio(whole: int | None, part: int | None) -> int | None:
    """How often `part` goes into `whole`, null where it leaves a rest."""
    return whole // part if whole and part and whole % part == 0 else None


def _source(graph: Graph, name: str, products: dict[Node, Product]) -> Product | None:
    """The nearest linear behind `name`."""
    node = _nearest_behind(graph, name, products, lambda node: node in products)
    return products[node] if node else None


def _nearest_behind(
    graph: Graph, name: str, products: dict[Node, Product], wanted: Callable[[Node], bool]
) -> Node | None:
    walk = graph.behind(name, lambda node: node in products or wanted(node))
    return next((node for _, node in walk if wanted(node)), None)


def _split_width(graph: Graph, name: str, products: dict[Node, Product]) -> int | None:
    """Width of a head: the last dimension of `name`, or of the reshape that made heads of columns."""
    if (size := _last(graph.dims.get(name, ()))) is not None:
        return size
    for _, node in graph.behind(name, lambda node: node in products):
        if node.op == "Reshape" and (size := _last(graph.vector(node.input(1)) or ())) is not None:
            return size
    return None


def _last(dims: Dims) -> int | None:
    size = dims[-1] if len(dims) >= 3 else None
    return size if size and size > 1 else None


def hides_later_tokens(graph: Graph) -> bool:
    """Whether the graph makes a causal mask: a triangle, or a comparison of token positions with each other."""
    compares = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual")
    nodes = [node for node in graph.nodes if node.is_taken]
    if any(node.op == "Trilu" for node in nodes):
        return True
    pairs = (node for node in nodes if node.op in compares)
    return any(all(_counts(graph, name) for name in node.inputs[:2]) for node in pairs)


def _counts(graph: Graph, name: str) -> bool:
    """Whether `name` holds token positions."""
    near = islice(graph.behind(name, lambda node: node.op in ("Range", "CumSum")), _NEAR)
    return any(node.op in ("Range", "CumSum") for _, node in near)


def rotary_tensors(graph: Graph, products: dict[Node, Product]) -> set[Tensor]:
    """The constants that rotary positions are computed from, or are kept in; no weights."""
    return {tensor for name in _rotary(graph, products) if (found := graph.constant(name)) for tensor in found.stored}


def _rotary(graph: Graph, products: dict[Node, Product]) -> Iterator[str]:
    for node in graph.nodes:
        if node.op in ("Cos", "Sin"):
            yield node.input(0)
            for _, each in graph.behind(node.input(0), products.__contains__):
                yield from each.inputs
        elif node.op.endswith("RotaryEmbedding"):
            yield from node.inputs[1:]
        elif node.op == f"{_MS}GroupQueryAttention":
            yield from map(node.input, (7, 8))
