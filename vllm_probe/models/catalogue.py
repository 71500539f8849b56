"""Shapes of well-known models: `catalogue/NAME.json`, one file a model, read when it is asked for.

A file holds the fields of `ModelSpec`, and those of `Labels` beside them; `source` says where the facts are from.
"""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from vllm_probe.core.codec import from_json
from vllm_probe.core.files import read_json
from vllm_probe.core.model import ModelSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """What an entry is called besides its name.

    Attributes:
        family: first part of the names of its relatives, such as `qwen3`.
        aliases: short names, lower case.
        siblings: lower-case name to repository of other models that have this shape.
    """

    family: str
    aliases: tuple[str, ...] = ()
    siblings: dict[str, str] = field(default_factory=dict)


@cache
def entries() -> dict[str, Path]:
    """File of every model, by canonical name, sorted; nothing is opened."""
    return {path.stem: path for path in sorted(Path(__file__).with_suffix("").glob("*.json"))}


def load(name: str) -> ModelSpec:
    """The shape of the model with the canonical name `name`, without weights."""
    return from_json(ModelSpec, read_json(entries()[name]))


@cache
def labels() -> dict[str, Labels]:
    """Aliases and family of every model, by canonical name; reads all files once."""
    return {name: from_json(Labels, read_json(path)) for name, path in entries().items()}
