"""Which machine this is, without saying whose."""

import hashlib
import re
import time

from vllm_probe.core.document import Stamp
from vllm_probe.core.system import Host
from vllm_probe.core.units import GIB
from vllm_probe.core.version import __version__

_ACCELERATOR_CLASSES = ("0x03", "0x0b40", "0x1180", "0x12")  # display, co-processor, signal, accelerator: pci.ids
_MODEL = re.compile(r"^(?:model name|Hardware|CPU part|cpu model)\s*:\s*(.*\S)", re.MULTILINE)


def host_fingerprint(host: Host) -> str:
    """`sha256:` and 16 digits over processor model and count, memory in GiB, machine and PCI ids of accelerators."""
    stats, platform = host.stats(), host.platform()
    cpuinfo = host.read_text("/proc/cpuinfo") or ""
    if not cpuinfo and platform.system == "darwin":
        cpuinfo = "model name: " + host.run(["sysctl", "-n", "machdep.cpu.brand_string"], 5.0).stdout
    model = _MODEL.search(cpuinfo)
    parts = [
        model[1] if model else host.env("PROCESSOR_IDENTIFIER") or "",
        str(len(re.findall(r"^processor\s*:", cpuinfo, re.MULTILINE)) or len(stats.affinity or ())),
        str(round((stats.memory_total_bytes or 0) / GIB)),
        platform.machine,
        *_accelerators(host),
    ]
    return f"sha256:{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:16]}"


def make_stamp(host: Host) -> Stamp:
    """The header of every document written in this run."""
    created_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(host.now()))
    return Stamp(created_at=created_at, tool_version=__version__, host_fingerprint=host_fingerprint(host))


def _accelerators(host: Host) -> list[str]:
    folders = (path.removesuffix("/class") for path in host.glob("/sys/bus/pci/devices/*/class"))
    return sorted(
        f"{(host.read_text(f'{folder}/vendor') or '').strip()}:{(host.read_text(f'{folder}/device') or '').strip()}"
        for folder in folders
        if (host.read_text(f"{folder}/class") or "").startswith(_ACCELERATOR_CLASSES)
    )
