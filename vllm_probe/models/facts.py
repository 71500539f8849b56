"""Typed access to a model's config, which anybody may have written."""

from vllm_probe.core.errors import InvalidModel
from vllm_probe.core.values import JsonValue

MAX_LAYERS = 1024
_LIMIT = 1 << 32


class Facts:
    """A JSON object whose values may be anything; `defaults` stand in for keys that it lacks or that are null."""

    def __init__(self, values: JsonValue, source: str, defaults: dict[str, JsonValue] | None = None) -> None:
        stated = values if isinstance(values, dict) else {}
        self.values = {**(defaults or {}), **{name: value for name, value in stated.items() if value is not None}}
        self.source = source

    def count(self, *names: str, default: int | None = None, minimum: int = 1) -> int:
        """The first of `names` that is there, a whole number.

        Raises:
            InvalidModel: another value, or none and no `default`.
        """
        name = next((name for name in names if name in self.values), None)
        value = self.values[name] if name else default
        if type(value) is not int or not minimum <= value < _LIMIT:
            raise self.invalid(f"{name or names[0]} is missing or not a whole number from {minimum} to {_LIMIT - 1}")
        return value

    def maybe(self, *names: str) -> int | None:
        """As `count`, null when none of `names` is there."""
        return self.count(*names) if any(name in self.values for name in names) else None

    def number(self, name: str, default: float) -> float:
        """A number that is not negative."""
        value = self.values.get(name, default)
        if not isinstance(value, int | float) or not 0 <= value < _LIMIT:
            raise self.invalid(f"{name} is not a number from 0 to {_LIMIT}")
        return float(value)

    def word(self, *names: str, default: str = "") -> str:
        """The first of `names` that is text."""
        return next((self.values[name] for name in names if isinstance(self.values.get(name), str)), default)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Whether `name` is true."""
        return self.values.get(name, default) is True

    def part(self, *names: str) -> "Facts":
        """The first of `names` that is an object; an empty one without."""
        found = (self.values.get(name) for name in names)
        return Facts(next((value for value in found if isinstance(value, dict)), {}), self.source)

    def items(self, *names: str) -> list[JsonValue]:
        """The first of `names` that is a list; an empty one without."""
        found = (self.values.get(name) for name in names)
        return next((value for value in found if isinstance(value, list)), [])

    def ids(self, name: str) -> list[int]:
        """Token ids under `name`, one or a list."""
        value = self.values.get(name)
        listed = value if isinstance(value, list) else [value]
        return [token for token in listed if type(token) is int and 0 <= token < _LIMIT]

    def invalid(self, reason: str) -> InvalidModel:
        """The error for values that no model has."""
        return InvalidModel(f"{self.source}: {reason}", hint="get the model's files again, or report its config")
