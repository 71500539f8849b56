"""Frozen dataclasses to JSON text and back, with the pointer to whatever does not fit."""

import json
import math
import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from vllm_probe.core.errors import SchemaViolation
from vllm_probe.core.values import Bound, JsonValue, Pattern

T = TypeVar("T")
_MAX_DEPTH = 64
_SIGNIFICANT_DIGITS = 6


def dumps(value: Any) -> str:
    """Canonical text of `value`: sorted keys, six significant digits, a final newline."""
    return json.dumps(to_json(value), indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def to_json(value: Any) -> JsonValue:
    """JSON value of a dataclass, mapping, sequence or scalar.

    Raises:
        ValueError: a number is not finite.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    if isinstance(value, float):
        return _stable(value)
    return value


def _stable(value: float) -> float | int:
    if not math.isfinite(value):
        raise ValueError(f"{value} cannot stand in a document")
    rounded = float(f"{value:.{_SIGNIFICANT_DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def from_json(cls: type[T], value: JsonValue, pointer: str = "") -> T:
    """The `cls` that `value` describes; keys that `cls` does not know are left out.

    Raises:
        SchemaViolation: with the JSON pointer of the first value that does not fit.
    """
    result: T = _decode(cls, value, pointer, 0)
    return result


def join(pointer: str, key: str | int) -> str:
    """`pointer` extended by `key`, escaped as RFC 6901 says."""
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"


@cache
def hints(cls: type) -> dict[str, Any]:
    """Field types of a dataclass with their `Annotated` bounds."""
    return get_type_hints(cls, include_extras=True)


def _decode(kind: Any, value: JsonValue, pointer: str, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        raise SchemaViolation("nested too deeply", pointer=pointer)
    if kind is Any:
        return _checked_json(value, pointer, depth)
    if is_dataclass(kind):
        return _decode_object(kind, value, pointer, depth)
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in get_args(kind):
            return None
        (inner,) = (arm for arm in get_args(kind) if arm is not type(None))
        return _decode(inner, value, pointer, depth)
    if origin is Literal:
        return _decode_literal(get_args(kind), value, pointer)
    if origin is tuple:
        return _decode_tuple(get_args(kind), value, pointer, depth)
    if origin is dict:
        if not isinstance(value, dict):
            raise _mismatch("an object", value, pointer)
        item = get_args(kind)[1]
        return {key: _decode(item, inner, join(pointer, key), depth + 1) for key, inner in value.items()}
    if hasattr(kind, "__metadata__"):
        return _constrained(kind.__metadata__, _scalar(kind.__origin__, value, pointer), pointer)
    return _scalar(kind, value, pointer)


def _decode_object(cls: Any, value: JsonValue, pointer: str, depth: int) -> Any:
    if not isinstance(value, dict):
        raise _mismatch("an object", value, pointer)
    types_by_name = hints(cls)
    given: dict[str, Any] = {}
    for field in fields(cls):
        if field.name in value:
            kind = types_by_name[field.name]
            given[field.name] = _decode(kind, value[field.name], join(pointer, field.name), depth + 1)
        elif field.default is MISSING and field.default_factory is MISSING:
            raise SchemaViolation(f"{field.name!r} is missing", pointer=pointer)
    return cls(**given)


def _decode_tuple(kinds: tuple[Any, ...], value: JsonValue, pointer: str, depth: int) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _mismatch("an array", value, pointer)
    if kinds[-1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(value) != len(kinds):
        raise SchemaViolation(f"has {len(value)} items, not {len(kinds)}", pointer=pointer)
    pairs = zip(kinds, value, strict=True)
    return tuple(_decode(kind, item, join(pointer, i), depth + 1) for i, (kind, item) in enumerate(pairs))


def _decode_literal(allowed: tuple[Any, ...], value: JsonValue, pointer: str) -> JsonValue:
    if not isinstance(value, str) or value not in allowed:
        raise SchemaViolation(f"{value!r} is not one of {', '.join(allowed)}"[:200], pointer=pointer)
    return value


def _scalar(kind: Any, value: JsonValue, pointer: str) -> JsonValue:
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return _finite(value, pointer)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    name = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}[kind]
    raise _mismatch(name, value, pointer)


def _finite(value: float, pointer: str) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise SchemaViolation("is not a finite number", pointer=pointer)
    return number


def _constrained(constraints: tuple[Any, ...], value: Any, pointer: str) -> Any:
    for constraint in constraints:
        if isinstance(constraint, Bound):
            if constraint.minimum is not None and value < constraint.minimum:
                raise SchemaViolation(f"{value} is below {constraint.minimum:g}", pointer=pointer)
            if constraint.maximum is not None and value > constraint.maximum:
                raise SchemaViolation(f"{value} is above {constraint.maximum:g}", pointer=pointer)
        elif isinstance(constraint, Pattern) and not re.fullmatch(constraint.regex, value):
            raise SchemaViolation(f"{value!r} does not match {constraint.regex}"[:200], pointer=pointer)
    return value


def _checked_json(value: JsonValue, pointer: str, depth: int) -> JsonValue:
    if depth > _MAX_DEPTH:
        raise SchemaViolation("nested too deeply", pointer=pointer)
    if isinstance(value, float):
        return _finite(value, pointer)
    if isinstance(value, dict):
        return {key: _checked_json(item, join(pointer, key), depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_checked_json(item, join(pointer, i), depth + 1) for i, item in enumerate(value)]
    return value


def _mismatch(wanted: str, value: JsonValue, pointer: str) -> SchemaViolation:
    names = {type(None): "null", bool: "a boolean", str: "a string", list: "an array", dict: "an object"}
    return SchemaViolation(f"is {names.get(type(value), 'a number')}, not {wanted}", pointer=pointer)
