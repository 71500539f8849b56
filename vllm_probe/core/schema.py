"""JSON Schemas of the documents: written from the dataclasses, shipped as files, checked with jsonschema."""

import inspect
import json
import re
import types
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, Literal, Union, get_args, get_origin

from vllm_probe.core import codec
from vllm_probe.core.capability import Capability
from vllm_probe.core.config import RuntimeConfig
from vllm_probe.core.device import Diagnosis, Inventory
from vllm_probe.core.errors import UnknownName
from vllm_probe.core.resources import resource_dir
from vllm_probe.core.scene import Scene
from vllm_probe.core.values import COMPUTE_DTYPES, Bound, JsonValue, Pattern

DOCUMENTS: dict[str, type] = {
    "capability": Capability,
    "doctor": Diagnosis,
    "inventory": Inventory,
    "runtime": RuntimeConfig,
    "scene": Scene,
}


_WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "capability": {"/compute_units": COMPUTE_DTYPES, "/weight_only": ("int8", "int4")}
}  # document -> pointer of an object by word -> the words
_LIKENESS = 0.5  # of 1: `thruput` is to `throughput_gflops` 0.58


@dataclass(frozen=True, slots=True)
class Violation:
    """One place where a document breaks its schema.

    Attributes:
        pointer: JSON pointer to it.
        message: what is wrong there.
    """

    pointer: str
    message: str


def schema_text(name: str) -> str:
    """The shipped schema `name`, as text.

    Raises:
        UnknownName: no such schema.
    """
    if name not in DOCUMENTS:
        raise UnknownName(f"no schema is called {name!r}", hint=f"the schemas are {', '.join(sorted(DOCUMENTS))}")
    return (resource_dir("schemas") / f"{name}.schema.json").read_text(encoding="utf-8")


def violations(name: str, value: JsonValue) -> tuple[Violation, ...]:
    """Every place where `value` breaks the schema `name`, by pointer."""
    import jsonschema

    validator = jsonschema.Draft202012Validator(json.loads(schema_text(name)))
    found = (
        Violation("".join(codec.join("", part) for part in error.absolute_path), error.message[:300])
        for root in validator.iter_errors(value)
        for error in _innermost(root)
    )
    return tuple(sorted(found, key=lambda violation: violation.pointer))


def unknown_keys(name: str, value: JsonValue) -> tuple[Violation, ...]:
    """Every key in `value` that this release does not know in the document `name`, with the known one nearest to it.

    They violate no schema, since a later minor version may add keys, and a reader leaves them out.
    """
    return tuple(_strangers(DOCUMENTS[name], value, "", _WORDS.get(name, {})))


def _strangers(kind: Any, value: JsonValue, pointer: str, words: dict[str, tuple[str, ...]]) -> Iterator[Violation]:
    arms = [arm for arm in get_args(kind) if arm not in (type(None), Ellipsis)]
    if isinstance(value, dict) and isinstance(kind, type) and is_dataclass(kind):
        inner = codec.hints(kind)
    elif isinstance(value, dict) and get_origin(kind) is dict:
        inner = dict.fromkeys(words.get(pointer, value), arms[1])
    elif isinstance(value, list) and get_origin(kind) is tuple and len(arms) == 1:
        for index, item in enumerate(value):
            yield from _strangers(arms[0], item, codec.join(pointer, index), words)
        return
    elif get_origin(kind) in (Union, types.UnionType):
        yield from _strangers(arms[0], value, pointer, words)
        return
    else:
        return
    for key, item in value.items():
        if key in inner:
            yield from _strangers(inner[key], item, codec.join(pointer, key), words)
        else:
            near = get_close_matches(key, inner, n=1, cutoff=_LIKENESS)
            advice = f"did you mean {near[0]}?" if near else f"known are {', '.join(inner)}"
            yield Violation(codec.join(pointer, key), f"unknown key, left out; {advice}")


def _innermost(error: Any) -> Iterator[Any]:
    """The errors inside the arm that is not null, where `error` is about a value that may be null."""
    if error.validator != "anyOf":
        yield error
        return
    for inner in error.context:
        if inner.schema != {"type": "null"}:
            yield from _innermost(inner)


def build_schema(name: str) -> dict[str, JsonValue]:
    """The schema `name` as its dataclass defines it; `make schemas` writes it to `schemas/`."""
    definitions: dict[str, JsonValue] = {}
    root = _object(DOCUMENTS[name], definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"vllm-probe {name}",
        **root,
        "$defs": definitions,
    }


def _object(cls: type, definitions: dict[str, JsonValue]) -> dict[str, JsonValue]:
    documentation = _attribute_docs(cls)
    types_by_name = codec.hints(cls)
    properties: dict[str, JsonValue] = {}
    required: list[JsonValue] = []
    for field in fields(cls):
        text = documentation.get(field.name)
        schema = _schema_of(types_by_name[field.name], definitions)
        properties[field.name] = {"description": text, **schema} if text else schema
        if field.default is MISSING and field.default_factory is MISSING:
            required.append(field.name)
    summary = (inspect.getdoc(cls) or "").partition("\n")[0]
    return {"type": "object", "description": summary, "properties": properties, "required": required}


def _schema_of(kind: Any, definitions: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if kind is Any:
        return {}
    if isinstance(kind, type) and is_dataclass(kind):
        name = kind.__name__
        if name not in definitions:
            definitions[name] = {}
            definitions[name] = _object(kind, definitions)
        return {"$ref": f"#/$defs/{name}"}
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        (inner,) = (arm for arm in arguments if arm is not type(None))
        return {"anyOf": [_schema_of(inner, definitions), {"type": "null"}]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple and arguments[-1] is Ellipsis:
        return {"type": "array", "items": _schema_of(arguments[0], definitions)}
    if origin is tuple:
        items = [_schema_of(argument, definitions) for argument in arguments]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema_of(arguments[1], definitions)}
    if hasattr(kind, "__metadata__"):
        return _schema_of(kind.__origin__, definitions) | _constraints(kind.__metadata__)
    return {"type": {str: "string", int: "integer", float: "number", bool: "boolean"}[kind]}


def _constraints(metadata: tuple[Any, ...]) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {}
    for constraint in metadata:
        if isinstance(constraint, Bound):
            limits = {"minimum": constraint.minimum, "maximum": constraint.maximum}
            found |= {key: limit for key, limit in limits.items() if limit is not None}
        elif isinstance(constraint, Pattern):
            found["pattern"] = f"^(?:{constraint.regex})(?![\\s\\S])"
    return found


def _attribute_docs(cls: type) -> dict[str, str]:
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        section = (inspect.getdoc(base) or "").partition("Attributes:")[2] if is_dataclass(base) else ""
        found |= {
            name: " ".join(text.split()) for name, text in re.findall(r"^ {4}(\w+): (.+)$", section, re.MULTILINE)
        }
    return found
