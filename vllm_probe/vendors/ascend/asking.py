"""Asks DCMI and ACL at the same time, each in a process of its own, and npu-smi where DCMI leaves something out."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from vllm_probe.core.errors import LibraryTimeout, LibraryUnavailable
from vllm_probe.core.system import Host
from vllm_probe.vendors.ascend import smi
from vllm_probe.vendors.ascend.codes import GROUP, LOG, dcmi_meaning

Record: TypeAlias = dict[str, Any]

_FOLDER = "vllm_probe.vendors.ascend"
DCMI_S, ACL_S, MEMORY_S = 3.5, 6.5, 2.5
"""ACL is asked while DCMI and then npu-smi are, its memory after them: all of it ends before the probe's own limit."""


class Answer(NamedTuple):
    """A library's report, or why there is none: `missing`, `late` or `broken`, and in words."""

    report: Record
    state: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """What was said of the machine.

    Attributes:
        dcmi: DCMI's answer.
        acl: ACL's answer.
        smi: npu-smi's report in DCMI's form; null where it was not asked.
    """

    dcmi: Answer
    acl: Answer
    smi: Record | None = field(default=None)

    @property
    def status(self) -> int | None:
        """What DCMI, or npu-smi in its place, says of the driver: 0, an error, or null where neither could be asked."""
        if "status" in self.dcmi.report:
            return int(self.dcmi.report["status"])
        if self.smi is None or "error" in self.smi:
            return None
        return int(self.smi.get("status", 0)) if self.smi["devices"] or "status" in self.smi else None

    @property
    def failures(self) -> list[str]:
        """How DCMI and npu-smi fail where they are there, and what to do about it."""
        dcmi = self.dcmi.error if self.dcmi.state == "broken" else None
        tool = str((self.smi or {}).get("error", ""))
        found = [each for each in (dcmi, tool if tool.startswith(smi.SOURCE) else None) if each]
        return [*found, GROUP if "denied" in tool.lower() else LOG] if found else []

    @property
    def silence(self) -> str:
        """Why neither DCMI nor npu-smi told anything of a device."""
        if self.status is not None:
            return f"DCMI: {dcmi_meaning(self.status).text}" if self.status else "the driver does not list it"
        told = (self.smi or {}).get("error", "npu-smi lists nothing")
        return "; ".join(each for each in (self.dcmi.error, told) if each)


def ask(host: Host) -> Reports:
    """What they say; one that hangs, crashes or is missing leaves what the others report."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        later = pool.submit(_answer, host, "acl:read", "ACL", ACL_S)
        dcmi = _answer(host, "lib:read", "DCMI", DCMI_S)
        tool = smi.read(host) if _lacking(dcmi.report) else None
        return Reports(dcmi=dcmi, acl=later.result(), smi=tool)


def ask_memory(host: Host) -> list[Record]:
    """Free and total bytes of each device that ACL shows, which makes a context on it for a moment."""
    report = _answer(host, "acl:memory", "ACL", MEMORY_S).report
    devices: list[Record] = report.get("devices", [])
    return devices


def _lacking(report: Record) -> bool:
    """Whether npu-smi may know more: where DCMI gives an error, npu-smi, which asks it, gives the same."""
    if "status" not in report:
        return True
    if report["status"]:
        return False
    due = ("name", "memory")
    return not report["devices"] or any(key not in each for each in report["devices"] for key in due)


def _answer(host: Host, function: str, name: str, timeout_s: float) -> Answer:
    whole = f"{_FOLDER}.{function}"
    try:
        return Answer(host.isolated(whole, timeout_s))
    except LibraryTimeout:
        return Answer({}, "late", f"{name} did not answer within {timeout_s:g} s")
    except LibraryUnavailable as error:
        text = str(error)
        absent = "cannot open shared object file: No such file" in text and text.startswith(("libdcmi", "libascendcl"))
        return Answer({}, "missing" if absent else "broken", text.replace(whole, name))
