"""Values of any document type, built from the same annotations that codec and schema read."""

import types
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin

from hypothesis import strategies as st

from vllm_probe.core import codec
from vllm_probe.core.values import Bound, Pattern

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)


def instances(kind: Any) -> st.SearchStrategy[Any]:
    """Values that the codec writes for `kind`."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return _JSON
    if isinstance(kind, type) and is_dataclass(kind):
        hints = codec.hints(kind)
        return st.builds(kind, **{field.name: instances(hints[field.name]) for field in fields(kind)})
    if origin in (Union, types.UnionType):
        return st.none() | instances(next(arm for arm in arguments if arm is not type(None)))
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(instances(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(instances(argument) for argument in arguments))
    if origin is dict:
        return st.dictionaries(st.text(max_size=6), instances(arguments[1]), max_size=2)
    if hasattr(kind, "__metadata__"):
        return _constrained(kind.__origin__, kind.__metadata__)
    numbers = st.integers(-999, 999)
    return {str: st.text(max_size=8), int: numbers, float: numbers.map(lambda n: n / 8), bool: st.booleans()}[kind]


def _constrained(kind: Any, metadata: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    for constraint in metadata:
        if isinstance(constraint, Pattern):
            return st.from_regex(constraint.regex, fullmatch=True)
        if isinstance(constraint, Bound):
            low, high = int(constraint.minimum or 0), int(constraint.maximum or 999)
            return st.integers(low, high) if kind is int else st.integers(low * 8, high * 8).map(lambda n: n / 8)
    raise AssertionError(metadata)


@st.composite
def damaged(draw: st.DrawFn, document: Any) -> Any:
    """`document` with one value somewhere replaced, removed or added."""
    if isinstance(document, dict) and document and draw(st.integers(0, 4)):
        key = draw(st.sampled_from(sorted(document)))
        if draw(st.integers(0, 5)) == 0:
            return {other: item for other, item in document.items() if other != key}
        return {**document, key: draw(damaged(document[key]))}
    if isinstance(document, list) and document and draw(st.integers(0, 4)):
        index = draw(st.integers(0, len(document) - 1))
        return [*document[:index], draw(damaged(document[index])), *document[index + 1 :]]
    return draw(_JSON | st.sampled_from([-1, 0.5, 2.0, "1.0\n", "usable", [], {}]))
