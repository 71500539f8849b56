"""Which linears a list of names, globs and regular expressions means, as quantized checkpoints leave them alone."""

import math
import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import translate

from vllm_probe.core.errors import InvalidModel

_LAYERS = re.compile(r"^(?:model\.|backbone\.)?(?:language_model\.)?(?:model\.)?(?=layers\.)")
_PREFIXES = ("model.", "model.language_model.", "language_model.model.")
_MAX_LENGTH = 400
_MAX_STEPS = 5_000_000_000  # an upper bound: a second has about a thousand million of these
_MAX_RULES = 4096  # each takes a tenth of a millisecond to compile
_NAME_LENGTH = 64
_LEAST_COST = 2000  # a comparison takes one or two microseconds
_REPEATED_GROUP = re.compile(r"\)\s*[*+{]|\\[1-9]|\(\?P=|\(\?\(")
_UNBOUNDED = re.compile(r"(?<!\\)[*+{]")
_HINT = "correct quantization_config, or get the checkpoint again"
_OPTIONAL = re.compile(r"(?<![(\\])\?")

Matcher = Callable[[tuple[str, ...]], bool]
"""Whether a linear with these names, written from `layers.N` on, is meant."""


def matcher(patterns: Iterable[object], source: str, *, among: int = 1) -> Matcher:
    """Whether one of `patterns` names a linear, or a module around or in it; `among` so many lists share the time.

    Three forms: a name, which may leave out parts at its ends; a name with `*`; `re:` and a regular expression that
    matches from the beginning. Anything but text is passed over.

    Raises:
        InvalidModel: a regular expression that is none, or more to compare than can be done in a few seconds.
    """
    words = [pattern for pattern in patterns if isinstance(pattern, str) and len(pattern) <= _MAX_LENGTH]
    exact = {_LAYERS.sub("", word) for word in words if "*" not in word and not word.startswith("re:")}
    found = dict.fromkeys(word for word in words if "*" in word or word.startswith("re:"))
    if len(found) > _MAX_RULES:
        raise InvalidModel(f"{source}: quantization_config lists {len(found)} patterns", hint=_HINT)
    rules = [_Rule.of(word, source) for word in found]
    left, cost = _MAX_STEPS // max(among, 1), sum(rule.cost for rule in rules)

    def means(names: tuple[str, ...]) -> bool:
        nonlocal left
        left -= cost * len(names)
        if left < 0:
            message = f"{source}: {len(rules)} patterns of quantization_config take too long to compare"
            raise InvalidModel(message, hint=_HINT)
        return any(
            not exact.isdisjoint(_runs(name))
            or any(rule.pattern.match(prefix + name) for rule in rules for prefix in rule.prefixes)
            for name in names
        )

    return means


@dataclass(frozen=True, slots=True)
class _Rule:
    """A pattern, what stands before a name when it is compared, and an upper bound of the steps that takes."""

    pattern: re.Pattern[str]
    prefixes: tuple[str, ...]
    cost: int

    @classmethod
    def of(cls, word: str, source: str) -> "_Rule":
        is_expression = word.startswith("re:")
        return cls.of_expression(word[3:], source) if is_expression else cls.of_glob(_LAYERS.sub("", word))

    @classmethod
    def of_glob(cls, word: str) -> "_Rule":
        """`word` at the beginning of a name or behind a dot, to its end or before a dot."""
        body = translate(re.sub(r"\*+", "*", word)).removeprefix("(?s:").removesuffix(r")\Z")
        return cls(re.compile(rf"(?s:(?:.*\.)?{body}(?:\..*)?)\Z"), ("",), _LEAST_COST)

    @classmethod
    def of_expression(cls, pattern: str, source: str) -> "_Rule":
        collapsed = re.sub(
            r"(?<!\\)\.\*$", "", re.sub(r"(?<!\\)(?:\.\*)+", ".*", pattern)
        )  # at the end it changes nothing
        repeats = len(_UNBOUNDED.findall(collapsed))
        choices = math.prod(1 + part.count("|") for part in collapsed.split(")")) << len(_OPTIONAL.findall(collapsed))
        cost = _NAME_LENGTH**repeats // math.factorial(repeats) * choices
        reason = "a repeated group may take forever" if _REPEATED_GROUP.search(collapsed) else None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compiled = re.compile("" if reason else collapsed)
        except (re.error, RecursionError, OverflowError) as error:
            reason = str(error)
        if reason:
            message = f"{source}: the regular expression {pattern[:80]!r} cannot be compared: {reason}"
            raise InvalidModel(message, hint=_HINT)
        anywhere = pattern.startswith(".*") and "language_model" not in pattern
        prefixes = _PREFIXES[:1] if anywhere else _PREFIXES
        return cls(compiled, prefixes, max(cost, _LEAST_COST) * len(prefixes))


def _runs(name: str) -> Iterable[str]:
    """Every run of the dotted parts of `name`."""
    parts = name.split(".")
    return (".".join(parts[begin:end]) for begin in range(len(parts)) for end in range(begin + 1, len(parts) + 1))
