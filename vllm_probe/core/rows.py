"""Rows of the doctor's catalogue as data, and the lines of a log that speak for them."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from vllm_probe.core.device import Finding, Fix
from vllm_probe.core.files import read_json
from vllm_probe.core.values import Severity

FixText: TypeAlias = tuple[str, str | None, str, str]
"""Where, command or null, text, effect: the fields of a `Fix` in order, with `<name>` markers to fill."""

_SHOWN = 280
CUT = " …"
"""Ends a line of a log that goes on."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a row says on every machine; `<name>` markers stand for what a check found.

    Attributes:
        id: `CTR-13`.
        severity: blocks, degrades, latent or info.
        cause: why, one sentence.
        fix: ways out, nearest first.
        disables_device: the device cannot be initialised here because of it, or not run by what is installed.
    """

    id: str
    severity: Severity
    cause: str
    fix: tuple[FixText, ...] = ()
    disables_device: bool = False

    def finding(
        self, device: str | None, evidence: Iterable[str | None], *, severity: Severity | None = None, **values: object
    ) -> Finding:
        """The row found on `device`, its markers replaced by `values`; null evidence is left out."""
        felt = severity or self.severity
        return Finding(
            id=self.id,
            severity=felt,
            blocking=felt == "blocks",
            disables_device=self.disables_device,
            device=device,
            evidence=tuple(fact for fact in evidence if fact),
            cause=_filled(self.cause, values),
            fix=tuple(
                Fix(
                    where=where,
                    command=command and _filled(command, values),
                    text=_filled(text, values),
                    effect=_filled(effect, values),
                )
                for where, command, text, effect in self.fix
            ),
        )


def load_rows(path: Path) -> dict[str, Row]:
    """The rows in the JSON file at `path`, by key: a row's id, with `/variant` where it has several causes.

    The file holds `recipes`, name to fixes that several rows share, and `rows`; a row's own fixes come first.
    """
    value = read_json(path)
    return {
        key: Row(
            id=key.partition("/")[0],
            severity=row["severity"],
            cause=row["cause"],
            fix=tuple(
                (where, command, text, effect)
                for fixes in (row.get("fix", ()), *(value["recipes"][name] for name in row.get("recipes", ())))
                for where, command, text, effect in fixes
            ),
            disables_device=row.get("disables_device", False),
        )
        for key, row in value["rows"].items()
    }


def matching_line(log: str, pattern: str) -> str | None:
    """The first line of `log` that matches `pattern`, as evidence: printable, cut at a word after 280 characters."""
    match = re.search(pattern, log)
    if match is None:
        return None
    start = log.rfind("\n", 0, match.start()) + 1
    end = log.find("\n", match.start())
    line = log[start : end if end >= 0 else len(log)]
    if len(line) > _SHOWN:
        rest = line[match.start() - start :]
        whole = rest[: _SHOWN + 1].rpartition(" ")[0] or rest[:_SHOWN]
        line = rest if len(rest) <= _SHOWN else f"{whole}{CUT}"
    return "log: " + "".join(character for character in line if character.isprintable()).strip()


def _filled(text: str, values: dict[str, object]) -> str:
    for name, value in values.items():
        text = text.replace(f"<{name}>", str(value))
    return text
