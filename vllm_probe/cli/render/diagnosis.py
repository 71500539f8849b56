"""The document of `doctor` for a person."""

from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from vllm_probe.cli.render import findings
from vllm_probe.cli.render.console import SEVERITY_STYLES, heading, pairs, verdict
from vllm_probe.core.device import Diagnosis


def render(found: Diagnosis) -> Group:
    """Findings, most severe first, then each device's verdict and what was not looked at."""
    parts: list[RenderableType] = [
        *_unexplained(found),
        _summary(found),
        findings.render(found.findings),
        heading("devices"),
    ]
    parts.append(pairs((device.id, verdict(device.verdict)) for device in found.devices))
    if found.not_checked:
        notes = (Padding(Text(reason, style="dim"), (0, 0, 0, 2)) for reason in found.not_checked)
        parts += [heading("not checked"), *notes]
    return Group(*parts)


def _unexplained(found: Diagnosis) -> Iterator[Text]:
    """That the log which was brought says nothing known: first of all, since it is what was asked."""
    for reason in found.not_checked:
        if reason.startswith("the log: "):
            yield Text(f"the log is not understood: {reason.removeprefix('the log: ')}", style="yellow")
            yield Text("what was found without it:")


def _summary(found: Diagnosis) -> Text:
    if not found.findings:
        return _without_findings(found)
    counts: Counter[str] = Counter(finding.severity for finding in found.findings)
    shown = (
        (f"{counts[severity]} {severity}", style) for severity, style in SEVERITY_STYLES.items() if counts[severity]
    )
    return Text(", ").join(Text(text, style=style) for text, style in shown)


def _without_findings(found: Diagnosis) -> Text:
    """That no check found anything, which says nothing good of a device whose own verdict is bad."""
    split = {device.id.partition("/")[0] for device in found.devices if "/" in device.id}  # their parts compute
    dead = sum(device.verdict.code in {"unusable", "hidden"} and device.id not in split for device in found.devices)
    unclear = sum(device.verdict.code == "unknown" for device in found.devices)
    if dead:
        count = f"{dead} of {len(found.devices)} device" + "s" * (len(found.devices) != 1)
        return Text(f"no known fault was found, but {count} cannot be used: see why below", style="yellow")
    if unclear:
        count = f"{unclear} of {len(found.devices)} device" + "s" * (len(found.devices) != 1)
        was = "was" if unclear == 1 else "were"
        return Text(f"no known fault was found, but {count} {was} not checked: see below", style="yellow")
    return Text("nothing wrong was found on this machine", style="green")
