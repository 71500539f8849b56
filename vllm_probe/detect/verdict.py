"""What findings mean for the device that they concern."""

from collections.abc import Iterable
from dataclasses import replace

from vllm_probe.core.device import Device, Finding, Verdict

SEVERITIES = ("blocks", "degrades", "latent", "info")


def judge(device: Device, findings: Iterable[Finding]) -> Device:
    """`device` as its findings leave it: unusable by one that disables it, limited by another that is felt now."""
    mine = sorted(
        (finding for finding in findings if finding.device == device.id and finding.severity != "info"),
        key=lambda finding: (not finding.disables_device, SEVERITIES.index(finding.severity)),
    )
    if not mine:
        return device
    ids = tuple(dict.fromkeys((*device.verdict.findings, *(finding.id for finding in mine))))
    if mine[0].disables_device:
        return replace(device, usable=False, verdict=Verdict(code="unusable", reason=mine[0].cause, findings=ids))
    if device.verdict.code == "usable" and mine[0].severity != "latent":
        return replace(device, verdict=Verdict(code="limited", reason=mine[0].cause, findings=ids))
    return replace(device, verdict=replace(device.verdict, findings=ids))
