"""Findings with their evidence and the exact command that fixes each."""

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from vllm_probe.cli.render.console import SEVERITY_STYLES
from vllm_probe.core.device import Finding, Fix


def render(findings: Iterable[Finding]) -> Group:
    """One block per finding, in the order given."""
    return Group(*(part for finding in findings for part in _finding(finding)))


def _finding(finding: Finding) -> Iterator[RenderableType]:
    style = SEVERITY_STYLES[finding.severity]
    place = finding.device or "this machine"
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
