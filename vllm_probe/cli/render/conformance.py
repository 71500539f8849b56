"""What the conformance suite found, for a person."""

from rich.console import Group
from rich.text import Text

from vllm_probe.cli.render.console import table
from vllm_probe.vendors.conformance import ConformanceReport

_WORDS = {True: ("PASS", "green"), False: ("FAIL", "bold red"), None: ("SKIP", "dim")}


def render(report: ConformanceReport) -> Group:
    """Every check with how it ended and why, then the sum."""
    rows = table("result", "check", "why", "seconds", right=("seconds",))
    for result in report.results:
        rows.add_row(Text(*_WORDS[result.ok]), Text(result.name), Text(result.reason), f"{result.seconds:.2f}")
    counts = f"{report.passed} passed, {report.failed} failed, {report.skipped} skipped"
    return Group(rows, Text(f"\n{report.adapter} on {report.device}: {counts}"))
