"""The table that `nvidia-smi` prints, of Linux, WSL and Windows, in the form of NVML's report."""

import re
from typing import Any

from vllm_probe.vendors.nvidia.smi_words import gone, is_known, parse_address

_MIB = 1 << 20
_DRIVER = re.compile(r"(?:Driver Version|KMD Version): *(\d[\d.]*)")
"""`Driver Version:` up to driver 609, `KMD Version:` from 610."""
_CUDA = re.compile(r"CUDA (?:UMD )?Version: *(\d[\d.]*)")
_FIRST_ROW = re.compile(
    r"\| +(\d{1,3}) +([^|]{1,64}?)(?:\.\.\.)? {1,32}(?:On|Off|N/A|ERR!|WDDM|TCC|MCDM) *"
    r"\| *([0-9A-Fa-f:.]{12,17}|N/A|ERR!)[ |]"
)
"""A word too wide for its column, as `ERR!` of a lost card, takes the blank before the bar."""
_USAGE = re.compile(r"\| *(\d{1,9})MiB */ *(\d{1,9})MiB")
_PART = re.compile(r"\| +(\d{1,3}) +(\d{1,3}) +(\d{1,3}) +(\d{1,3}) +\| +(\d{1,9})MiB */ *(\d{1,9})MiB *\| *(\d{1,4})")


def parse_table(text: str) -> dict[str, Any]:
    """Driver, CUDA version and devices with their MIG instances; a name that the table cuts off is left out."""
    report: dict[str, Any] = {"devices": []}
    driver, cuda = _DRIVER.search(text), _CUDA.search(text)
    report |= {"driver": driver[1].rstrip(".")} if driver else {}
    report |= {"cuda_version": cuda[1].rstrip(".")} if cuda else {}
    usage_due = False
    for line in text.splitlines():
        if usage_due:
            _add_usage(report["devices"][-1], line)
        row = _FIRST_ROW.match(line)
        usage_due = row is not None
        if row:
            report["devices"].append(_device(row, line))
        elif part := _PART.match(line):
            _add_part(report["devices"], part)
    return report


def _device(row: "re.Match[str]", line: str) -> dict[str, Any]:
    device: dict[str, Any] = {"index": int(row[1])}
    name = row[2].strip()
    device |= {"name": name} if is_known(name) and "..." not in line[: row.end()] else {}
    address = parse_address(row[3])
    return device | ({"id": address} if address else {})


def _add_usage(device: dict[str, Any], line: str) -> None:
    """Memory, or in its place that the GPU is gone."""
    found, status = _USAGE.search(line), gone(*line.split("|"))
    if found and int(found[2]):
        device["memory"] = {"used": int(found[1]) * _MIB, "total": int(found[2]) * _MIB}
    device |= {} if status is None else {"status": status}


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
