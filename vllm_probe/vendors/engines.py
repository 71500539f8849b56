"""Which architectures the releases of an engine run on: one table for what is detected and what is negotiated.

`engines.json` has, by engine and vendor, what an architecture of the vendor looks like (`form`); until which release
which of them an engine runs on (`rows`, `*` ever since: `min_arch` and newer, or what begins with one of `archs`);
those that its sources compile for though no release does (`compiles`); what to do where none runs there (`instead`);
and where it is all from.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from vllm_probe.core.errors import BadUsage
from vllm_probe.core.files import read_json
from vllm_probe.core.releases import at_version, is_before

Record: TypeAlias = Mapping[str, Any]

_EVER = str(1 << 16)  # a release after every other


@cache
def _table() -> Record:
    loaded: Record = read_json(Path(__file__).with_name("engines.json"))
    return loaded


def floors(engine: str, vendor: str) -> Record:
    """What is known of an engine on a vendor's architectures, empty where it runs on all or nothing is known."""
    found: Record = _table().get(engine, {}).get(vendor, {})
    return found


def arch_word(arch: str | None, form: str) -> str | None:
    """An architecture in the words of the tables; null where it is unknown or none of the vendor's form."""
    word = re.sub(r"^ascend[ _-]*", "", (arch or "").lower().partition(":")[0])
    return word if re.fullmatch(form, word) else None


def is_older(word: str | None, least: Sequence[Any] | None) -> bool | None:
    """Whether an architecture is older than `least`; null where it is unknown or of another family."""
    arch = re.fullmatch(r"([a-z_]+)(\d+)[a-z]?", word or "")
    if least is None or arch is None or least[0] != arch[1]:
        return None
    return int(arch[2]) < int(least[1])


def is_under(word: str | None, rule: Record) -> bool:
    """Whether an architecture is certainly none of those of a rule."""
    is_other = bool(word and "archs" in rule and not word.startswith(tuple(rule["archs"])))
    return is_other or is_older(word, rule.get("min_arch")) is True


def floor_of(rule: Record) -> str:
    """The architectures of a rule in words."""
    return f"{''.join(map(str, rule['min_arch']))} and newer" if "min_arch" in rule else ", ".join(rule["archs"])


def last_release(rules: Record, word: str | None, version: str) -> str | None:
    """The last release before `version` that runs on the architecture, null without."""
    rows = rules.get("rows", ())
    older = (until for until, _ in rows if until != "*" and is_before(until, version))
    return next((until for until in reversed([*older]) if not is_under(word, at_version(rows, until))), None)


def refusal(engine: str, vendor: str, arch: str | None, version: str | None = None) -> str | None:
    """What a release runs on, after its name, where that is not this architecture of a vendor, and what does run there.

    It is the newest release where `version` is null. Null where it runs, where that is not known, and for a version
    that is no number.
    """
    rules = floors(engine, vendor)
    word = arch_word(arch, rules.get("form", ".+"))
    try:
        rule = at_version(rules["rows"], version or _EVER) if rules else {}
        if not is_under(word, rule):
            return None
        older = last_release(rules, word, version or _EVER)
    except BadUsage:
        return None
    does = f"{older} is the last release that does" if older else rules["instead"]
    return f"runs on {floor_of(rule)}, this is {arch}: {does}"


def last_on(engine: str, vendor: str, arch: str | None) -> str | None:
    """The last release that runs on an architecture which the newest does not run on, null where none is known to."""
    rules = floors(engine, vendor)
    return last_release(rules, arch_word(arch, rules.get("form", ".+")), _EVER)


def compiles(engine: str, vendor: str, arch: str | None) -> bool:
    """Whether the engine's sources can be compiled for an architecture that no release is built for."""
    rules = floors(engine, vendor)
    return arch_word(arch, rules.get("form", ".+")) in rules.get("compiles", ())
