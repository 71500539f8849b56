"""What is installed and older than vLLM needs it for a device: ASC-05."""

from collections.abc import Iterator

from vllm_probe.core.device import Device, Finding
from vllm_probe.core.plugin import Check
from vllm_probe.core.system import Host
from vllm_probe.detect.checks import ROWS
from vllm_probe.detect.stack import old_runtime


def older_cann(_host: Host, devices: tuple[Device, ...], _log: str) -> Iterator[Finding]:
    """ASC-05 for the machine, whose NPUs run on one CANN."""
    for device in devices:
        found = old_runtime(device) if device.vendor == "ascend" else None
        if found:
            name, version, least = found
            source = device.sources.get("/details/cann_version", "installed")
            facts = (f"{source}: {name} {version}", f"{device.id}: {device.name or device.arch}")
            yield ROWS["ASC-05"].finding(None, facts, version=version, least=least)
            return


CHECKS = (Check(ids=("ASC-05",), run=older_cann),)
