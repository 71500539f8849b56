"""Findings with their evidence and the exact command that fixes each."""

import re
from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from vllm_probe.cli.render.console import SEVERITY_STYLES
from vllm_probe.core.device import Finding, Fix

_CAPITALS = {
    "N": "the number of the device's node, for an NPU what `npu-smi info -m` shows on the host",
    "MODEL": "the model's name or folder",
    "IMAGE": "the container image that you run",
    "BUILD": "the build for the device: cu126, cu128 or cu130 (NVIDIA), rocm7.2 (AMD), xpu (Intel) or cpu",
    "NAME": "one of `vllm-probe capability list`",
    "LOG": "the file with the log",
    "TOKENS": "a number of tokens",
    "SHARE": "a number over 0 and under 1",
    "DEVICES": "a number of devices",
    "RANKS": "a number of devices",
    "BYTES": "a size such as 64g",
    "PORT": "a number, 8000 by default",
    "OTHER": "a port that is free",
    "CONTAINER": "one of `docker ps`",
    "BRANCH": "the driver's major version, such as 580",
    "REPOSITORY": "a name on the hub, such as Qwen/Qwen3-8B",
}
"""What stands for what the reader fills in."""


def render(findings: Iterable[Finding]) -> Group:
    """One block per finding, in the order given, then what to put in place of the capitals in their commands."""
    shown = tuple(findings)
    commands = " ".join(fix.command or "" for finding in shown for fix in finding.fix)
    left = dict.fromkeys(word for word in re.findall(r"\b[A-Z]{3,10}\b|(?<=[a-z.])N\b", commands) if word in _CAPITALS)
    legend = [Padding(Text(f"{word}: {_CAPITALS[word]}", style="dim"), (0, 0, 0, 2)) for word in left]
    parts = [part for finding in shown for part in _finding(finding)]
    return Group(*parts, *((Padding(Text("put in the commands"), (1, 0, 0, 0)), *legend) if legend else ()))


def _finding(finding: Finding) -> Iterator[RenderableType]:
    style = SEVERITY_STYLES[finding.severity]
    is_told = finding.evidence and all(fact.startswith("log: ") for fact in finding.evidence)
    place = finding.device or ("in the log" if is_told else "this machine")
    yield Padding(Text.assemble((finding.id, "bold"), "  ", (finding.severity, style), f"  {place}"), (1, 0, 0, 0))
    yield Padding(Text(finding.cause), (0, 0, 0, 2))
    for evidence in finding.evidence:
        yield Padding(Text(f"seen: {evidence}", style="dim"), (0, 0, 0, 4))
    for fix in finding.fix:
        yield from _fix(fix)


def _fix(fix: Fix) -> Iterator[RenderableType]:
    yield Padding(Text.assemble((f"fix ({fix.where}): ", "green"), fix.text), (0, 0, 0, 4))
    for line in (fix.command or "").splitlines():
        yield Text(f"      {line}", style="bold", no_wrap=True, overflow="ignore")
    if fix.effect:
        yield Padding(Text(f"changes: {fix.effect}", style="dim"), (0, 0, 0, 6))
