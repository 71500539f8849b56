"""What findings mean for the device that they concern."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from vllm_probe.core.device import Device, Finding, Verdict
from vllm_probe.core.system import Host
from vllm_probe.vendors.software import container_kind

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


def nearest_first(host: Host, findings: Iterable[Finding]) -> Iterator[Finding]:
    """`findings`, of each the fixes that can be typed on `host` as it is before those that are typed elsewhere."""
    here = container_kind(host) or "host"
    for finding in findings:
        yield replace(finding, fix=tuple(sorted(finding.fix, key=lambda fix: fix.where not in {here, "shell"})))
