"""The table that `nvidia-smi` prints, of Linux, WSL and Windows, in the form of NVML's report; and its error texts."""

import re
from typing import Any

from vllm_probe.vendors.nvidia.codes import LOST, MISMATCH, NOT_SUPPORTED
from vllm_probe.vendors.nvidia.smi_xml import parse_address

_MIB = 1 << 20
_DRIVER = re.compile(r"(?:Driver Version|KMD Version): *(\d[\d.]*)")
"""`Driver Version:` up to driver 609, `KMD Version:` from 610."""
_CUDA = re.compile(r"CUDA (?:UMD )?Version: *(\d[\d.]*)")
_FIRST_ROW = re.compile(
    r"\| +(\d{1,3}) +(.{1,64}?)(?:\.\.\.)? {1,32}(?:On|Off|N/A|WDDM|TCC|MCDM) +\| +([0-9A-Fa-f:.]{12,17}|N/A) "
)
_USAGE = re.compile(r"\| *(\d{1,9})MiB */ *(\d{1,9})MiB")
_PART = re.compile(r"\| +(\d{1,3}) +(\d{1,3}) +(\d{1,3}) +(\d{1,3}) +\| +(\d{1,9})MiB */ *(\d{1,9})MiB *\| *(\d{1,4})")
_ERRORS = {
    "version mismatch": MISMATCH,
    "couldn't communicate": 9,
    "driver not loaded": 9,
    "insufficient permissions": 4,
    "gpu is lost": LOST,
    "not supported": NOT_SUPPORTED,
    "unknown error": 999,
}


def parse_table(text: str) -> dict[str, Any]:
    """Driver, CUDA version and devices with their MIG instances; a name that the table cuts off is left out."""
    report: dict[str, Any] = {"devices": []}
    driver, cuda = _DRIVER.search(text), _CUDA.search(text)
    report |= {"driver": driver[1].rstrip(".")} if driver else {}
    report |= {"cuda_version": cuda[1].rstrip(".")} if cuda else {}
    usage_due = False
    for line in text.splitlines():
        if usage_due:
            _add_memory(report["devices"][-1], line)
        row = _FIRST_ROW.match(line)
        usage_due = row is not None
        if row:
            report["devices"].append(_device(row, line))
        elif part := _PART.match(line):
            _add_part(report["devices"], part)
    return report


def parse_error(text: str) -> int | None:
    """NVML's status behind what nvidia-smi says when it fails, null where it does not say it."""
    said = text.lower()
    if "failed" not in said and "unable to" not in said and "error" not in said:
        return None
    return next((status for words, status in _ERRORS.items() if words in said), None)


def _device(row: "re.Match[str]", line: str) -> dict[str, Any]:
    device: dict[str, Any] = {"index": int(row[1])}
    if "..." not in line[: row.end()]:
        device["name"] = row[2].strip()
    address = parse_address(row[3])
    return device | ({"id": address} if address else {})


def _add_memory(device: dict[str, Any], line: str) -> None:
    found = _USAGE.search(line)
    if found and int(found[2]):
        device["memory"] = {"used": int(found[1]) * _MIB, "total": int(found[2]) * _MIB}


def _add_part(devices: list[dict[str, Any]], row: "re.Match[str]") -> None:
    """The MIG table alone, without the GPUs' own, is read too."""
    index, gpu_instance, compute_instance, _, used, total, multiprocessors = map(int, row.groups())
    device = next((each for each in devices if each["index"] == index), None)
    if device is None:
        device = {"index": index}
        devices.append(device)
    part = {"gpu_instance": gpu_instance, "compute_instance": compute_instance, "multiprocessors": multiprocessors}
    part_memory = {"memory": {"used": used * _MIB, "total": total * _MIB}} if total else {}
    device.setdefault("parts", []).append(part | part_memory)
    device["mig"] = True
