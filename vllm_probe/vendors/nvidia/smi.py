"""Layer 2: nvidia-smi, where the libraries did not answer, and for what they lack."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from vllm_probe.core.system import CommandResult, Host
from vllm_probe.vendors.nvidia.smi_words import parse_failure

SOURCE = "nvidia-smi"
_PROGRAMS = (SOURCE, "/usr/lib/wsl/lib/nvidia-smi")
_TIMEOUT_S = 3.0
_COLUMNS = ("name", "driver_version", "compute_cap")
_XML, _TABLE = ("-q", "-x"), ()
_CSV = (f"--query-gpu={','.join(_COLUMNS)}", "--format=csv,noheader")


def read(host: Host) -> dict[str, Any]:
    """A report in the form of NVML's, from as few formats as tell names and memory.

    `status` is NVML's where nvidia-smi fails with it and tells nothing, of a device where it fails with that alone;
    `error` says that there is no nvidia-smi or that it hangs.
    """
    deadline = host.now() + _TIMEOUT_S
    report: dict[str, Any] = {"devices": []}
    failures: dict[str, int] = {}
    for options in (_XML, _CSV, _TABLE):  # the second knows the architecture, the last is there with any driver
        if options == _TABLE and any("memory" in device for device in report["devices"]):
            break
        ended = _run(host, options, deadline - host.now())
        if ended.status == "timeout":
            report["error"] = f"nvidia-smi did not answer in {_TIMEOUT_S:g} s"
            break
        if ended.status == "missing":
            report["error"] = "there is no nvidia-smi"
            continue
        report = _merged({key: value for key, value in report.items() if key != "error"}, _parsed(options, ended))
        status, of_devices = parse_failure(f"{ended.stdout}\n{ended.stderr}")
        failures |= of_devices
        if ended.returncode and status is not None and not report["devices"]:
            return report | {"status": status}
    if any("uuid" not in part for device in report["devices"] for part in device.get("parts", ())):
        listing = _run(host, ("-L",), deadline - host.now()).stdout
        report |= {"devices": _with_uuids(report["devices"], listing)}
    return report | {"devices": _failing(report["devices"], failures)}


def _with_uuids(devices: Sequence[dict[str, Any]], listing: str) -> list[dict[str, Any]]:
    """`devices` with the UUIDs of their MIG instances, where `nvidia-smi -L` lists as many, in the same order."""
    blocks = re.split(r"^GPU [0-9]{1,3}:", listing, flags=re.MULTILINE)[1:]
    if len(blocks) != len(devices):
        return list(devices)
    found = []
    for device, block in zip(devices, blocks, strict=True):
        uuids = re.findall(r"^\s+MIG .*\(UUID: (MIG-[\w/-]{1,80})\)", block, re.MULTILINE)
        parts = device.get("parts", ())
        if parts and len(parts) == len(uuids):
            parts = [{"uuid": uuid, **part} for part, uuid in zip(parts, uuids, strict=True)]
        found.append(device | ({"parts": parts} if parts else {}))
    return found


def _failing(devices: Sequence[dict[str, Any]], failures: Mapping[str, int]) -> list[dict[str, Any]]:
    """`devices` and those that nvidia-smi fails with, by address, each with its status."""
    found = [{**each, "status": failures[each["id"]]} if each.get("id") in failures else each for each in devices]
    listed = {each.get("id") for each in devices}
    return [*found, *({"id": id_, "status": status} for id_, status in failures.items() if id_ not in listed)]


def _parsed(options: tuple[str, ...], ended: CommandResult) -> dict[str, Any]:
    """The report; parsers are loaded when there is text for them."""
    from vllm_probe.vendors.nvidia.smi_csv import parse_csv
    from vllm_probe.vendors.nvidia.smi_table import parse_table
    from vllm_probe.vendors.nvidia.smi_xml import parse_xml

    if options == _CSV:
        return parse_csv(ended.stdout, _COLUMNS)
    return parse_xml(ended.stdout) if options == _XML else parse_table(ended.stdout)


def _run(host: Host, options: tuple[str, ...], timeout_s: float) -> CommandResult:
    result = host.run((_PROGRAMS[0], *options), timeout_s)
    if result.status == "missing" and host.exists(_PROGRAMS[1]):
        return host.run((_PROGRAMS[1], *options), timeout_s)
    return result


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """`first` with what only `second` has; both list the devices in the same order, or one lists none."""
    one, other = first["devices"], second["devices"]
    if one and other and len(one) != len(other):
        return second | first
    devices = [{**b, **a} for a, b in zip(one, other, strict=True)] if one and other else one or other
    return second | first | {"devices": devices}
