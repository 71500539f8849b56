"""Layer 2: xpu-smi of 1.x and 2.x, for what the driver and Level Zero did not tell."""

from collections.abc import Callable
from typing import Any, TypeAlias

from vllm_probe.core.system import Host
from vllm_probe.vendors.intel.smi_csv import parse_csv
from vllm_probe.vendors.intel.smi_json import parse_discovery, parse_error, parse_stats
from vllm_probe.vendors.intel.smi_text import parse_discovery_text, parse_stats_text, parse_summary

Record: TypeAlias = dict[str, Any]

_PROGRAM = "xpu-smi"
TIMEOUT_S = 4.0
_COLUMNS = ("index", "name", "pci.bus_id", "memory.total", "memory.used", "memory.free")
_LISTS: tuple[tuple[tuple[str, ...], Callable[[str], Record]], ...] = (
    (("discovery", "-j"), parse_discovery),
    ((f"--query-gpu={','.join(_COLUMNS)}", "--format=csv,noheader,nounits"), lambda text: parse_csv(text, _COLUMNS)),
    ((), parse_summary),
    (("discovery",), parse_discovery_text),
)
"""Options to what lists devices: the first is there with any version, the next two with 2.x."""
_ABOUT: tuple[tuple[str, str, Callable[[str], Record], Callable[[str], Record]], ...] = (
    ("total", "discovery", parse_discovery, parse_discovery_text),
    ("used", "stats", parse_stats, parse_stats_text),
)
"""What of a device's memory a subcommand tells, and how its JSON and its text are read."""


class _Ended(Exception):
    """xpu-smi gave no answer, and will not to the next question either."""


class _Late(Exception):
    """The time is over."""


def read(host: Host, timeout_s: float = TIMEOUT_S) -> Record:
    """`{"devices": [...]}` as `smi_json` has it, without a device where there is no xpu-smi.

    `error` says that xpu-smi fails, crashes or hangs, which tells nothing of the devices.
    """
    deadline = host.now() + timeout_s
    report: Record = {"devices": []}
    try:
        report = _listed(host, deadline)
        for device in report["devices"]:
            _complete(host, device, deadline)
    except _Late:
        return report | {"error": f"xpu-smi did not answer in {timeout_s:.2g} s"}
    except _Ended as ended:
        return report | {"error": str(ended)}
    return report


def _listed(host: Host, deadline: float) -> Record:
    for options, parse in _LISTS:
        report = parse(_text(host, options, deadline) or "")
        if report["devices"] or report.get("listed"):
            return report
    return {"devices": []}


def _complete(host: Host, device: Record, deadline: float) -> None:
    """Asks for what the list did not tell of the memory of `device`."""
    for size, subcommand, parse, parse_text in _ABOUT:
        sizes = device.get("memory", {})
        if "index" not in device or size in sizes or (size == "used" and "free" in sizes):
            continue
        options = (subcommand, "-d", str(device["index"]))
        text = _text(host, (*options, "-j"), deadline)
        told = parse(text) if text else parse_text(_text(host, options, deadline) or "")
        told = next(iter(told["devices"]), {}) if "devices" in told else told
        both = {**told.get("memory", {}), **sizes}
        device.update({**told, **device} | ({"memory": both} if both else {}))


def _text(host: Host, options: tuple[str, ...], deadline: float) -> str | None:
    """What it prints, null where it does not know the options or is not there.

    Raises:
        _Late: it hangs.
        _Ended: it crashes or says that it cannot work.
    """
    ended = host.run((_PROGRAM, *options), max(deadline - host.now(), 0))
    if ended.status == "timeout":
        raise _Late
    code = ended.returncode
    if ended.status == "missing" or code is None:
        return None
    if code < 0 or code > 128:  # a shell adds 128 to the number of the signal
        raise _Ended(f"xpu-smi was killed by signal {-code if code < 0 else code - 128}")
    error = parse_error(ended.stdout)
    if error:
        raise _Ended(f"xpu-smi says: {error}"[:200])
    return ended.stdout if code == 0 else None
