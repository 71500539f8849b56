"""Runs every check, each apart from the others, and judges the devices by what they found."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from errno import EACCES, EPERM

from vllm_probe.core.device import Device, DeviceVerdict, Diagnosis, Finding
from vllm_probe.core.document import Stamp
from vllm_probe.core.errors import RecordingIncomplete
from vllm_probe.core.plugin import Check
from vllm_probe.core.rows import CUT, Row
from vllm_probe.core.system import Host
from vllm_probe.detect.causes import unusable
from vllm_probe.detect.checks import container, runtime, stack, toolkit
from vllm_probe.detect.checks.engine import not_covered
from vllm_probe.detect.logged import next_step
from vllm_probe.detect.stack import weigh
from vllm_probe.detect.symptoms import explain
from vllm_probe.detect.verdict import SEVERITIES, judge, nearest_first
from vllm_probe.vendors.by_hand import OTHERWISE, check_by_hand
from vllm_probe.vendors.pci import OTHER_DISPLAY, accelerators
from vllm_probe.vendors.registry import PortableDeviceManager
from vllm_probe.vendors.software import container_kind, read_software

CHECKS: tuple[Check, ...] = (*container.CHECKS, *toolkit.CHECKS, *runtime.CHECKS, *stack.CHECKS)

_RAISED = Row(
    "PLG-08",
    "degrades",
    cause="The check of <ids> failed, so these rows were not looked at: it raised <error>.",
    fix=(
        ("shell", "vllm-probe doctor --record DIR", "Record this machine and report the error with it.", "writes DIR"),
    ),
)
_UNRECORDED = Row(
    "REC-01",
    "info",
    cause="The recording does not hold what the check of <ids> asks, so these rows were not looked at: <error>.",
    fix=(("shell", "vllm-probe doctor --record DIR", "Record the machine with this release.", "writes DIR"),),
)

_UNJUDGED = Row(
    "PLG-09",
    "degrades",
    cause="The <label> at <address> is there, and nothing here can judge or use it: no plug-in covers its vendor.",
    fix=(("shell", "vllm-probe adapter list", "See which vendors the installed plug-ins cover.", "none"),),
)


def diagnose(  # noqa: PLR0913 - what was found and read before comes from as many places
    host: Host,
    manager: PortableDeviceManager,
    stamp: Stamp,
    log: str | None = None,
    transcripts: Sequence[str] = (),
    log_path: str | None = None,
    *,
    known: Sequence[Finding] = (),
) -> Diagnosis:
    """What is wrong with `host`, and the exact commands that fix it; nothing is changed.

    `log` is error text that a user wants explained, from the file `log_path` where it is one; `transcripts` are those
    of a recording's commands; `known` was found before.
    """
    text = "\n".join([*transcripts, log or ""])
    probed = manager.probe_devices()
    found = [
        finding for check in (*manager.checks(), *CHECKS) for finding in _findings_of(check, host, probed.devices, text)
    ]
    software = read_software(host)
    weighed = tuple(weigh(device, software, host.env, probed.devices) for device in probed.devices)
    seen = (*manager.findings(), *known, *probed.findings, *found, *_unjudged(host, weighed))
    seen = (*seen, *not_covered(host, weighed, software))
    why = tuple(unusable(host, weighed, seen))
    findings = _in_order(host, explain(host, text, (*seen, *why), log_path, weighed))
    judged = tuple(_judged(device, findings, why) for device in weighed)
    return Diagnosis(
        schema_version="1.0",
        **stamp.header(),
        devices=tuple(
            DeviceVerdict(
                id=device.id,
                vendor=device.vendor,
                kind=device.kind,
                arch=device.arch,
                usable=device.usable,
                verdict=device.verdict,
            )
            for device in judged
        ),
        findings=findings,
        not_checked=(*_unexplained(log, log_path, findings), *_not_checked(host, judged, probed.unknown)),
    )


def _unjudged(host: Host, devices: Iterable[Device]) -> Iterator[Finding]:
    """One finding for each accelerator of a vendor that no plug-in knows; class 12 alone may be one of another sort."""
    listed = {device.id.partition("/")[0] for device in devices}
    left = [each for each in accelerators(host) if each.address not in listed and each.label != OTHER_DISPLAY]
    if left:
        from vllm_probe.vendors.plugins import discover_plugins  # only a machine with one of another vendor needs it

        covered = {vendor for plugin in discover_plugins(None).plugins for vendor in plugin.pci_vendors}
        for each in left:
            if each.vendor not in covered:
                yield _UNJUDGED.finding(
                    each.address,
                    (each.evidence,),
                    severity=None if each.kind else "info",
                    label=each.label,
                    address=each.address,
                )


def _judged(device: Device, findings: Sequence[Finding], why: Sequence[Finding]) -> Device:
    """`device` as `findings` leave it; what its verdict alone led to leaves the verdict's reason, which tells more."""
    reason = device.verdict.reason
    judged = judge(device, findings)
    explained = any(finding.device == device.id for finding in why)
    return replace(judged, verdict=replace(judged.verdict, reason=reason)) if explained else judged


def _findings_of(check: Check, host: Host, devices: tuple[Device, ...], log: str) -> Iterable[Finding]:
    ids = ", ".join(check.ids)
    try:
        return tuple(check.run(host, devices, log))
    except RecordingIncomplete as error:
        return (_UNRECORDED.finding(None, (), ids=ids, error=error),)
    except Exception as error:  # noqa: BLE001 - isolation point: one check must not cost the others
        import traceback

        named = f"{type(error).__name__}: {error}"
        return (_RAISED.finding(None, (traceback.format_exc(),), ids=ids, error=named),)


def _in_order(host: Host, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(
        sorted(
            nearest_first(host, findings),
            key=lambda finding: (SEVERITIES.index(finding.severity), finding.id, finding.device or ""),
        )
    )


def _unexplained(log: str | None, path: str | None, findings: Iterable[Finding]) -> Iterator[str]:
    if log is None:
        return
    printable = "".join(filter(str.isprintable, log))
    quoted = (
        fact.removeprefix("log: ").removesuffix(CUT)
        for each in findings
        for fact in each.evidence
        if fact.startswith("log: ")
    )
    if not printable.strip():
        yield "the log: it is empty"
    elif not any(line in printable for line in quoted):
        yield f"the log: nothing in it is known here; {next_step(log, path)}"


def _not_checked(host: Host, devices: tuple[Device, ...], unknown: Mapping[str, str]) -> Iterator[str]:
    if container_kind(host) in container.CONTAINERS:
        yield "container runtimes and CDI specifications: they are the host's; run doctor there too"
    if host.open_errno("/dev/kmsg") in {EACCES, EPERM}:
        yield "kernel messages: /dev/kmsg may be read by root alone; run doctor with sudo"
    if host.open_errno("/var/run/docker.sock") == EACCES:
        yield "docker's runtimes: this user may not ask the docker daemon"
    for index, device in enumerate(devices):
        if device.verdict.code == "unknown":
            silent, tool = unknown.get(f"/{index}/memory/reported_bytes", ""), check_by_hand(device)
            why = f" ({silent})" if "cannot open" in silent else ""
            todo = f"; run `{tool}`: {OTHERWISE}" if tool else ""
            yield f"{device.id} ({device.name or device.vendor}): {device.verdict.reason}{why}{todo}"
    listed = {device.id.partition("/")[0] for device in devices}
    bad = {device.id: device.verdict for device in devices if device.verdict.code == "unusable"}
    for function in accelerators(host):
        if function.asleep and function.address in bad and not bad[function.address].findings:
            yield f"{function.address} ({function.label}): asleep; {bad[function.address].reason}"
        if function.kind and function.address not in listed:
            yield f"{function.address} ({function.label}): no plug-in installed here examines it"
        if function.asleep and function.address not in listed:
            yield f"{function.address} ({function.label}): asleep, and opening its nodes would wake it"
