"""Whether a GPU can be used here, from what each layer said of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from vllm_probe.core.device import Device, Verdict
from vllm_probe.vendors.layer0 import NOT_GIVEN, access_options
from vllm_probe.vendors.nvidia import PLUGIN
from vllm_probe.vendors.nvidia.codes import NO_DEVICE, Meaning, cuda_meaning, nvml_meaning

_UNLICENSED = "the vGPU has no licence, so its driver slows it down after minutes: set one in /etc/nvidia/gridd.conf"
_MASK = "CUDA_VISIBLE_DEVICES"
_UNDER_WINDOWS = "install NVIDIA's driver anew under Windows, then run `shutdown /r /t 0`"
_OF_LINUX = re.compile("sudo|/dev/|container|LD_LIBRARY_PATH")
_UNLISTED = Meaning("the CUDA driver does not list it", "see `sudo dmesg | grep -i nvrm` on the host")
_KEPT = Meaning(f"{NOT_GIVEN} it", f"start it with `{access_options(PLUGIN.container)}`")
FEWER = "the CUDA driver has fewer GPUs than the bus shows and does not tell which"
UNRESOLVED = f"{_MASK} names a MIG instance by its UUID, and nothing here tells which has it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """What the libraries said of the machine.

    Attributes:
        nvml: NVML's report, empty where it gave none.
        cuda: the CUDA driver's report, empty where it gave none.
        nvml_error: why NVML gave none.
        cuda_error: why the CUDA driver gave none.
        cuda_state: whether it is `missing`, only did not answer in time (`late`), or is `broken`.
        mask: CUDA_VISIBLE_DEVICES, null where it is not set.
        windows: whether this is Windows itself.
        inside: whether this process is in a container.
        scarce: whether that has nodes for fewer GPUs than the bus shows.
        untold: why nothing tells which devices the CUDA driver has, null where something does.
    """

    nvml: Mapping[str, Any] = field(default_factory=dict)
    cuda: Mapping[str, Any] = field(default_factory=dict)
    nvml_error: str | None = None
    cuda_error: str | None = None
    cuda_state: str | None = None
    mask: str | None = None
    windows: bool = False
    inside: bool = False
    scarce: bool = False
    untold: str | None = None


def judged(device: Device, record: Mapping[str, Any], reports: Reports, *, seen: bool | None) -> Device:
    """`device` with its verdict, `usable` and `visible`.

    `seen` is whether the CUDA driver lists it, null where that is not known. The bus's word that it cannot be used
    stands, unless the driver lists it: modes of nodes are not all that decides who may open them. What an environment
    variable hides stays usable.
    """
    if device.verdict.code == "unusable" and not seen:
        return device
    against = _against(device, record, reports)
    if against is None and seen is False and device.visible:
        against = _unusable(_KEPT if reports.scarce else _UNLISTED, reports)
    if against is None and reports.untold:
        against = Verdict(code="unknown", reason=reports.untold)
    hidden = _hidden(device, reports)
    if against is None and hidden is None:
        return _accepted(device, record, reports)
    if hidden is not None and (against is None or _only_hidden(reports)):
        usable = reports.nvml.get("status") == 0 and "status" not in record
        hidden += "" if usable else "; whether it can be used was not checked"
        return replace(device, usable=usable, visible=False, verdict=Verdict(code="hidden", reason=hidden))
    indices = {name: number for name, number in device.indices.items() if name != "cuda"}
    sources = {pointer: source for pointer, source in device.sources.items() if pointer != "/indices/cuda"}
    return replace(device, usable=False, indices=indices, sources=sources, verdict=against or device.verdict)


def split(device: Device, instances: list[Device]) -> Device:
    """A GPU that is split into MIG instances, which compute in its place."""
    if device.verdict.code == "unusable":
        return device
    if instances:
        reason = f"MIG is on, so only its instances compute: {', '.join(each.id for each in instances)}"
    else:
        reason = (
            "MIG is on and there is no instance; run `sudo nvidia-smi mig -cgi <profile> -C`, "
            "or `sudo nvidia-smi -mig 0` and reboot"
        )
    return replace(device, usable=False, verdict=Verdict(code="unusable", reason=reason))


def _against(device: Device, record: Mapping[str, Any], reports: Reports) -> Verdict | None:
    """Why it cannot be initialised, null where the CUDA driver could be."""
    if record.get("status"):
        return _unusable(nvml_meaning(record["status"]), reports)
    if record.get("compute_mode") == "prohibited":
        return _unusable(Meaning("its compute mode is Prohibited", "run `sudo nvidia-smi -c DEFAULT`"), reports)
    nvml, cuda = reports.nvml.get("status"), reports.cuda.get("status")
    if cuda == 0:
        return None
    if nvml:
        return _unusable(nvml_meaning(nvml), reports)
    if cuda is not None:
        return _unusable(cuda_meaning(cuda), reports, f"cuInit gives {cuda}: ")
    if reports.cuda_state == "late":
        return Verdict(code="unknown", reason=f"{reports.cuda_error}; the driver hangs or is still starting")
    fix = (
        _install(device, reports)
        if reports.cuda_state == "missing"
        else "see `sudo dmesg`, and install the driver anew"
    )
    return _unusable(Meaning(f"{reports.cuda_error}", fix), reports)


def _install(device: Device, reports: Reports) -> str:
    if device.id.startswith("dxg:"):
        return "update the driver under Windows and run `wsl --update` there; install no Linux driver"
    if reports.inside:
        return "start the container with `-e NVIDIA_DRIVER_CAPABILITIES=compute,utility` and the nvidia runtime"
    if device.id.startswith("tegra:"):
        return "run `sudo apt install nvidia-l4t-cuda`"
    driver = reports.nvml.get("driver") or (device.driver or "").partition(" ")[2]
    branch = driver.split(".")[0] or "<branch>"
    return f"install the driver's libraries, on Ubuntu `sudo apt install libnvidia-compute-{branch}`"


def _hidden(device: Device, reports: Reports) -> str | None:
    if not device.visible:
        way = f"set {_MASK}=" if reports.windows else f"unset {_MASK}"
        return f"the environment variable {_MASK}={reports.mask or ''} hides it; run `{way}`"
    return None


def _only_hidden(reports: Reports) -> bool:
    """Whether the mask alone can be why the CUDA driver finds no device."""
    return not reports.nvml.get("status") and reports.cuda.get("status", NO_DEVICE) in {0, NO_DEVICE}


def _accepted(device: Device, record: Mapping[str, Any], reports: Reports) -> Device:
    limits = []
    if reports.nvml.get("status"):
        said = _said(nvml_meaning(reports.nvml["status"]), reports)
        limits.append(f"NVML fails although CUDA works, and vLLM needs both: {said}")
    if "silent" in record:
        limits.append(f"NVML fails although CUDA works, and vLLM needs both: {record['silent']}")
    if record.get("virtualization") == "vgpu" and record.get("licence") == "unlicensed":
        limits.append(_UNLICENSED)
    rows = record.get("remapped_rows", {})
    if rows.get("failed"):
        limits.append("rows of its memory are broken and no spare is left: have it replaced")
    elif rows.get("pending"):
        limits.append("rows of its memory are to be replaced: reboot")
    if limits:
        return replace(device, usable=True, verdict=Verdict(code="limited", reason="; ".join(limits)))
    version = reports.cuda.get("version")
    reason = f"the CUDA driver{f', for CUDA {version},' if version else ''} can be initialised"
    if device.memory.kind == "partition" and device.details.get("uuid"):
        reason += f"; {_MASK}={device.details['uuid']} selects it"
    return replace(device, usable=True, verdict=Verdict(code="usable", reason=reason))


def _unusable(meaning: Meaning, reports: Reports, prefix: str = "") -> Verdict:
    return Verdict(code="unusable", reason=prefix + _said(meaning, reports))


def _said(meaning: Meaning, reports: Reports) -> str:
    fix = meaning.fix
    if fix and reports.windows:
        typed = fix.replace("sudo nvidia-smi", "nvidia-smi")
        fix = _UNDER_WINDOWS if _OF_LINUX.search(typed) else typed
    return f"{meaning.text}; {fix}" if fix else meaning.text
