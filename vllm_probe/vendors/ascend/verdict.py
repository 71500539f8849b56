"""Whether an NPU can be used here, from what each layer said of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vllm_probe.core.device import Device, Verdict
from vllm_probe.core.system import Host
from vllm_probe.vendors.ascend import PLUGIN
from vllm_probe.vendors.ascend.asking import Reports
from vllm_probe.vendors.ascend.codes import REBOOT, Meaning, acl_meaning, dcmi_meaning
from vllm_probe.vendors.ascend.masks import MASK, node_number
from vllm_probe.vendors.ascend.places import Unit
from vllm_probe.vendors.layer0 import node_verdict
from vllm_probe.vendors.software import container_kind

_MOUNTS = " ".join(f"-v {path}:{path}" for path in PLUGIN.container.mounts)
_INSTALL = (
    "install CANN (toolkit and kernels of the chip), or start an image that has it, such as quay.io/ascend/vllm-ascend"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What is judged by beside the device itself.

    Attributes:
        reports: what was asked.
        inside: whether this process is in a container.
        cann: version of CANN in its files, null where there are none.
        mask: ASCEND_RT_VISIBLE_DEVICES, null where it is not set.
        denials: by node, what its mode denies this process, and the way in.
        shown: addresses of the devices that ACL shows for certain.
        doubt: that ACL shows some of the devices only, where it is not known which; null otherwise.
    """

    reports: Reports
    inside: bool
    cann: str | None
    mask: str | None
    denials: Mapping[str, str]
    shown: frozenset[str] = frozenset()
    doubt: str | None = None


def machine_of(host: Host, reports: Reports, cann: str | None, nodes: Sequence[Mapping[str, Any]]) -> Machine:
    """The machine around devices with these `nodes`."""
    return Machine(
        reports=reports,
        inside=container_kind(host) not in {None, "wsl"},
        cann=cann,
        mask=host.env(MASK),
        denials={fact["path"]: node_verdict(host, fact, "").reason for fact in nodes if fact["state"] == "denied"},
    )


def judged(device: Device, unit: Unit, machine: Machine) -> Device:
    """`device` with its verdict and `usable`; what only an environment variable hides stays usable."""
    if device.verdict.code == "unusable":
        return _without_number(device)
    against = _of_nodes(device, unit, machine) or _of_driver(device, unit, machine) or _of_acl(device, machine)
    if against is None and machine.doubt and machine.mask is None and not unit.record:
        against = _unknown(machine.doubt)
    if not device.visible:
        hides = f"the environment variable {MASK}={machine.mask or ''} hides it; run `unset {MASK}`"
        if against is None:
            return replace(device, usable=True, verdict=Verdict(code="hidden", reason=hides))
        if against.code == "unknown":
            against = Verdict(code="hidden", reason=f"{hides}; whether it can be used was not checked")
    if against is not None:
        return replace(_without_number(device), usable=False, verdict=against)
    limits = list(_limits(unit, machine))
    if limits:
        return replace(device, usable=True, verdict=Verdict(code="limited", reason="; ".join(limits)))
    health = f"its health is {unit.record['health'].upper()} and " if "health" in unit.record else ""
    version = f" {machine.cann}" if machine.cann else ""
    return replace(
        device, usable=True, verdict=Verdict(code="usable", reason=f"{health}CANN{version} can be initialised")
    )


def _of_nodes(device: Device, unit: Unit, machine: Machine) -> Verdict | None:
    """What keeps this process from the device's own node, where that is known; a virtual NPU's has another number."""
    if node_number(unit) is None:
        return None
    own = device.details["nodes"][-1]
    if own["path"] in machine.denials:
        return _unusable(Meaning(machine.denials[own["path"]]))
    lacking = own["state"] == "absent" and not _shown_by_acl(device, machine)
    return _unusable(_not_given(own["path"], machine)) if lacking else None


def _of_driver(device: Device, unit: Unit, machine: Machine) -> Verdict | None:
    """What the driver says against it, and its health; where CANN shows it, that DCMI fails is no more than a limit."""
    record, status = unit.record, machine.reports.status
    if status and not _shown_by_acl(device, machine):
        return _unusable(dcmi_meaning(status, inside=machine.inside))
    if record.get("status"):
        return _unusable(dcmi_meaning(record["status"], inside=machine.inside))
    if "silent" in record and not _shown_by_acl(device, machine):
        return _unusable(Meaning(f"DCMI fails over it: {record['silent']}", REBOOT))
    if unit.listed is False:
        return _unusable(_not_given("/dev/davinciN", machine))
    if record.get("health") in {"critical", "offline"}:
        said = "has failed" if record["health"] == "critical" else "has not started"
        return _unusable(Meaning(f"it {said}, its health is {record['health']}", _health_fix(record)))
    return None


def _shown_by_acl(device: Device, machine: Machine) -> bool:
    return device.id in machine.shown


def _not_given(node: str, machine: Machine) -> Meaning:
    if machine.inside:
        where = "" if node[-1].isdigit() else ", with the number that `npu-smi info -m` shows on the host"
        return Meaning("this container was not given the device", f"start it with `--device {node}` too{where}")
    return Meaning("the driver does not list it", "see `sudo dmesg | grep -i -E 'davinci|devdrv'` and `npu-smi info`")


def _of_acl(device: Device, machine: Machine) -> Verdict | None:
    """Why CANN cannot compute on it; unknown where nothing could be asked."""
    acl = machine.reports.acl
    if acl.state == "late":
        return _unknown(f"{acl.error}; the driver hangs or is still starting")
    if acl.state == "broken":
        return _unusable(Meaning(f"CANN fails: {acl.error}", _loading_fix(acl.error or "", machine)))
    if acl.state == "missing":
        return _unknown(_without_cann(device, machine))
    if acl.report["status"]:
        return _unusable(acl_meaning(acl.report["status"]), f"aclInit gives {acl.report['status']}: ")
    if not device.visible:
        return None
    counted, number = acl.report.get("count_status"), device.indices.get("npu", 0)
    if counted:
        return _unusable(acl_meaning(counted), f"aclrtGetDeviceCount gives {counted}: ")
    count = len(acl.report.get("devices", ()))
    if "devices" in acl.report and number >= count:
        shown = f"CANN shows {count} device{'s' * (count != 1)} only"
        return _unusable(
            Meaning(shown, f"look at `echo ${MASK}`, and do not mix `--device` with ascend-docker-runtime")
        )
    return None


def _loading_fix(error: str, machine: Machine) -> str:
    if error.startswith("ACL "):  # its process ended without an answer
        return "install the CANN that the driver's release names; see the newest file of ~/ascend/log/debug/plog"
    if "libascend_hal" in error or "libdrv" in error:
        if machine.inside:
            return f"the driver's libraries are missing: start the container with `{_MOUNTS}`"
        return "the driver's libraries are missing: install the driver, or run `sudo ldconfig`"
    return "run `source /usr/local/Ascend/ascend-toolkit/set_env.sh`, or install CANN anew"


def _without_cann(device: Device, machine: Machine) -> str:
    unchecked = "so whether torch and vLLM can use it was not checked"
    if machine.reports.dcmi.state == "late":
        return f"{machine.reports.dcmi.error}: the driver hangs or is still starting, {unchecked}"
    silent = machine.reports.status is None
    if machine.cann:
        reason = (
            f"CANN {machine.cann} is installed and its libascendcl.so is not found, {unchecked}; source its set_env.sh"
        )
    elif silent:
        reason = device.verdict.reason
    else:
        reason = f"the driver answers, and CANN is not installed here, {unchecked}; {_INSTALL}"
    return "; ".join([reason, *(machine.reports.failures if silent else ())])


def _limits(unit: Unit, machine: Machine) -> Sequence[str]:
    record, script = unit.record, machine.reports.acl.report.get("script")
    found = [machine.doubt] if machine.doubt else []
    if machine.reports.status:
        meaning = dcmi_meaning(machine.reports.status)
        found.append(f"CANN works although DCMI fails, so its health is not known: {meaning.text}")
    if "silent" in record:
        found.append(f"CANN works although DCMI fails over it, so its health is not known: {record['silent']}")
    if script:
        found.append(f"the loader does not find CANN: run `source {script}` before torch or vLLM")
    if record.get("health") in {"warning", "alarm"}:
        found.append(f"its health is {record['health']}: {_health_fix(record)}")
    if record.get("compatibility", "OK").upper() != "OK":
        found.append(f"driver and firmware do not fit ({record['compatibility']}): install the pair of one release")
    return found


def _health_fix(record: Mapping[str, Any]) -> str:
    return f"see `npu-smi info -t health -i {record.get('card', 0)} -c {record.get('chip', 0)}`"


def _without_number(device: Device) -> Device:
    indices = {name: number for name, number in device.indices.items() if name != "npu"}
    sources = {pointer: source for pointer, source in device.sources.items() if pointer != "/indices/npu"}
    return replace(device, indices=indices, sources=sources)


def _unusable(meaning: Meaning, prefix: str = "") -> Verdict:
    return Verdict(code="unusable", reason=f"{prefix}{meaning.text}" + (f"; {meaning.fix}" if meaning.fix else ""))


def _unknown(reason: str) -> Verdict:
    return Verdict(code="unknown", reason=reason)
