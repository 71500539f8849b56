"""What a graph tells of its model: linears with roles, tables, exact bytes, layers and heads."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple, TypeVar

from vllm_probe.core.model import LinearPart, MoeShape, StatedLinear
from vllm_probe.models.onnx.attention import Attention, find_attention, rotary_tensors
from vllm_probe.models.onnx.graph import Graph, Node, Tensor, flowing
from vllm_probe.models.onnx.products import Product, Table, find_products, find_tables
from vllm_probe.models.onnx.tensors import DTYPES, FLOATS

T = TypeVar("T")
_ELEMENTWISE = ("Add", "Mul", "Sub", "Where", "Slice", "Expand", "Cast", "Unsqueeze", "Reshape", "Identity")
_FEW_ROWS = 4  # a table of token types has no more


class _Key(NamedTuple):
    """What linears that are stated together have in common."""

    name: str
    part: LinearPart
    k: int
    n: int
    bits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was found in one graph.

    Attributes:
        graph: the graph.
        products: its linears.
        attention: its attention, in order.
        tokens: the token embedding, null without one.
        head: the output projection onto the vocabulary, null without one.
        num_positions: rows of a table of learned positions, 0 without one.
        num_token_types: rows of a token-type table, 0 without one.
        num_angles: positions whose cosines and sines are kept in the graph, 0 without.
        parameters: its weights: all constants but shapes, masks, scalars and what rotary positions are made of.
    """

    graph: Graph
    products: tuple[Product, ...]
    attention: tuple[Attention, ...]
    tokens: Table | None
    head: Product | None
    num_positions: int
    num_token_types: int
    num_angles: int
    parameters: frozenset[Tensor]

    @property
    def hidden_size(self) -> int | None:
        """Width of the residual stream: what queries are computed from, else the token embedding's."""
        widths = [each.queries.k for each in self.attention if each.queries]
        return most_common(widths or ([self.tokens.width] if self.tokens else []))

    @property
    def ties(self) -> bool:
        """Whether the output projection is the token embedding, or there is none."""
        return self.head is None or (self.tokens is not None and self.head.root in self.tokens.stored)

    @property
    def dtype(self) -> str:
        """The number format that most bytes of floating-point weights have."""
        sizes = Counter({"float32": 0})
        for tensor in self.parameters:
            if tensor.kind in DTYPES:
                sizes[DTYPES[tensor.kind]] += tensor.nbytes
        return sizes.most_common(1)[0][0]

    @property
    def feed_forward(self) -> tuple[int, bool]:
        """Width of the feed-forward, 0 without one, and whether it is gated."""
        attends = {product for each in self.attention for product in _of(each)}
        rest = [each for each in self.products if each not in attends and each is not self.head and each.node.is_taken]
        width = most_common([each.k for each in rest if each.n == self.hidden_size]) or 0
        up, wide = (sum(each.n == n for each in rest if each.k == self.hidden_size) for n in (width, 2 * width))
        return width, bool(wide) or up > sum(each.k == width for each in rest)

    def without(self, products: Iterable[Product]) -> "Findings":
        """The same without linears that an engine does not load, and without their weights."""
        left = set(products)
        dropped = chain.from_iterable((*product.stored, *product.bias) for product in left)
        kept = tuple(product for product in self.products if product not in left)
        head = None if self.head in left else self.head
        return replace(self, products=kept, head=head, parameters=self.parameters.difference(dropped))

    def pooler(self) -> list[Product]:
        """The linears that take one token of each sequence, as poolers and classifiers do."""
        return [each for each in self.products if each is not self.head and self._picks(each.data)]

    def _picks(self, name: str) -> bool:
        node = self.graph.producers.get(name)
        while node is not None and node.op in ("Identity", "Cast", "Dropout", "Squeeze", "Reshape", "Flatten"):
            node = self.graph.producers.get(node.input(0))
        if node is None or node.op != "Gather" or node.integer("axis") != 1:
            return False
        index = self.graph.constant(node.input(1))
        return index is not None and index.root.num_elements == 1

    def stated(self, moe: MoeShape | None, *, is_tied: bool) -> tuple[StatedLinear, ...]:
        """The linears by name, shape and part.

        Args:
            moe: the experts as the config says them; without it every expert counts as active.
            is_tied: the weight of the output projection is counted with the token embedding.
        """
        groups: dict[_Key, list[Product]] = {}
        roles = _roles(self.attention)
        used = {product.root for product in self.products if product.node.is_taken}
        for product in self.products:
            if product.root in used and not product.node.is_taken:
                continue  # the same weight in a branch that does not count
            is_head = product is self.head
            part = _part(product, moe, attends=product in roles, is_head=is_head)
            for name, width in _named(product, roles.get(product, ""), is_head=is_head):
                groups.setdefault(_Key(name, part, product.k, width, product.bits), []).append(product)
        return tuple(_stated(key, group, moe, is_tied=is_tied) for key, group in groups.items())


def find(graph: Graph) -> Findings:
    """What `graph` tells.

    Raises:
        InvalidModel: a weight of another size than its operator says, or values that cannot be followed.
    """
    products = find_products(graph)
    attention = find_attention(graph, products)
    for packed in attention:
        if packed.queries and packed.packed:
            products[packed.queries.node] = packed.queries.split(packed.packed)
    attention = [_renamed(each, products) for each in attention]
    sizes = {size for each in attention if each.head_dim for size in (each.head_dim, each.head_dim // 2)}
    tables, rotary = find_tables(graph), rotary_tensors(graph, products)
    caches = [table for table in tables if table.width in sizes and len(tables) > 1]
    rotary |= {tensor for table in caches for tensor in table.stored}
    tables = [table for table in tables if table not in caches]
    tokens = _token_table(graph, tables)
    beside = [table.rows for table in tables if table is not tokens]
    return Findings(
        graph=graph,
        products=tuple(products.values()),
        attention=tuple(attention),
        tokens=tokens,
        head=_head(products.values(), tokens),
        num_positions=max((rows for rows in beside if rows > _FEW_ROWS), default=0),
        num_token_types=max((rows for rows in beside if rows <= _FEW_ROWS), default=0),
        num_angles=max((tensor.dims[0] for tensor in rotary if len(tensor.dims) > 1), default=0),
        parameters=frozenset(_parameters(graph, products.values(), tables) - rotary),
    )


def most_common(items: Iterable[T | None]) -> T | None:
    """The item that stands there most often, the first of several; null without any."""
    counts = Counter(item for item in items if item is not None)
    return counts.most_common(1)[0][0] if counts else None


def _of(attention: Attention) -> tuple[Product, ...]:
    found = (attention.queries, attention.keys, attention.values, attention.output)
    return tuple(product for product in found if product is not None)


def _renamed(attention: Attention, products: dict[Node, Product]) -> Attention:
    """`attention` with the linears that `products` has by now."""

    def new(product: Product | None) -> Product | None:
        return products[product.node] if product else None

    return replace(
        attention,
        queries=new(attention.queries),
        keys=new(attention.keys),
        values=new(attention.values),
        output=new(attention.output),
    )


def _roles(attention: Iterable[Attention]) -> dict[Product, str]:
    """Which of q, k, v and o a linear is, several letters where it is several."""
    roles: dict[Product, str] = {}
    for each in attention:
        for letter, product in zip("qkvo", (each.queries, each.keys, each.values, each.output), strict=True):
            if product is not None and letter not in roles.get(product, ""):
                roles[product] = roles.get(product, "") + letter
    return roles


def _token_table(graph: Graph, tables: list[Table]) -> Table | None:
    """The largest table whose row numbers the caller gives, else the largest."""
    given = [table for table in tables if any(name in graph.inputs for name in _origins(graph, table.indices))]
    return max(given or tables, key=lambda table: table.rows, default=None)


def _origins(graph: Graph, name: str) -> Iterator[str]:
    yield name
    for _, node in graph.behind(name, lambda _: False):
        yield from flowing(node)


def _head(products: Iterable[Product], tokens: Table | None) -> Product | None:
    """The last linear onto the vocabulary."""
    if tokens is None:
        return None
    onto = [each for each in products if each.k == tokens.width and each.n == tokens.rows and each.node.is_taken]
    return onto[-1] if onto else None


def _parameters(graph: Graph, products: Collection[Product], tables: Iterable[Table]) -> set[Tensor]:
    """The constants that are weights: those of linears and tables, and all other floating-point ones but scalars.

    Tables of angles and masks, which exporters compute ahead, meet activations by element and are no wider than a head.
    """
    found = {tensor for each in products for tensor in each.stored} | {
        tensor for each in tables for tensor in each.stored
    }
    widths = {product.k for product in products}
    for name, tensor in graph.tensors.items():
        if name in graph.consumers and tensor.kind in FLOATS and tensor.num_elements > 1:
            is_mask = sum(size > 1 for size in tensor.dims) > 1 and tensor.dims[-1] not in widths
            if not is_mask or any(node.op not in _ELEMENTWISE for node in graph.consumers[name]):
                found.add(tensor)
    return found


def _named(product: Product, role: str, *, is_head: bool) -> Iterator[tuple[str, int]]:
    if len(product.widths) > 1:
        yield from zip("qkv", product.widths, strict=False)
    else:
        yield "lm_head" if is_head else role or f"{product.k}x{product.n}", product.n


def _part(product: Product, moe: MoeShape | None, *, attends: bool, is_head: bool) -> LinearPart:
    if is_head:
        return "lm_head"
    if attends:
        return "attention"
    if moe and product.n == moe.num_experts:
        return "kept"
    return "experts" if moe and moe.expert_intermediate in (product.k, product.n) else "feed_forward"


def _stated(key: _Key, group: list[Product], moe: MoeShape | None, *, is_tied: bool) -> StatedLinear:
    own = {product.root: product for product in group if key.part != "lm_head" or not is_tied}
    active = sum(product.copies for product in group if product.node.is_taken)
    if moe and key.part == "experts":
        active = active * moe.num_active // moe.num_experts
    shares = (sum(tensor.nbytes for tensor in each.stored) * key.n // each.n for each in own.values())
    return StatedLinear(
        name=key.name,
        k=key.k,
        n=key.n,
        stored=sum(product.copies for product in own.values()),
        active=active,
        part=key.part,
        bits=key.bits,
        nbytes=sum(shares),
    )
