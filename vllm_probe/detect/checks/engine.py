"""What an installed vLLM was not built for: VER-04."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from vllm_probe.core.device import Device, Finding, Software
from vllm_probe.core.system import Host
from vllm_probe.detect.builds import taken_arch
from vllm_probe.detect.causes import ROWS
from vllm_probe.detect.engine_pick import not_run, vllm_choice, vllm_vendor
from vllm_probe.vendors.engines import compiles

if TYPE_CHECKING:
    from vllm_probe.core.values import Severity


def not_covered(host: Host, devices: Sequence[Device], software: Software) -> Iterator[Finding]:
    """VER-04 for each GPU and NPU that can be used, and that the installed vLLM has no kernels for.

    It blocks where vLLM would take that one or none, degrades where one that was compiled here may run, and is latent
    where vLLM takes another.
    """
    vendor = vllm_vendor(host, software)
    choice = vllm_choice(devices, software.vllm, vendor)
    for device in devices:
        if software.vllm and device.vendor == vendor and device.kind in {"gpu", "npu"} and device.usable:
            refused = not_run(device, software.vllm, released=True)
            if refused:
                spared = choice.id not in {None, device.id}
                may = compiles("vllm", device.vendor, taken_arch(device))
                facts = (f"{device.id}: {device.name or device.vendor}, {device.arch}", f"vLLM {software.vllm}")
                severity: Severity | None = "latent" if spared else "degrades" if may else None
                yield ROWS["VER-04"].finding(device.id, facts, severity=severity, why=refused)
