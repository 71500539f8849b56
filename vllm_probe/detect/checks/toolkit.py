"""NVIDIA GPUs that this container was not given, or not in full: CTR-01, 04, 07, 08, 11, 16 and 17."""

from collections.abc import Iterator

from vllm_probe.core.device import Device, Finding
from vllm_probe.core.plugin import Check
from vllm_probe.core.system import Host
from vllm_probe.detect.checks import ROWS
from vllm_probe.detect.checks.container import CONTAINERS
from vllm_probe.detect.nodes import Refusal, lxc_lines, refusal
from vllm_probe.vendors.pci import NVIDIA, PciFunction, accelerators
from vllm_probe.vendors.software import container_kind


def nvidia_nodes(host: Host, _devices: tuple[Device, ...], _log: str) -> Iterator[Finding]:
    """One finding for each NVIDIA GPU on the bus that CUDA cannot reach in this container."""
    kind = container_kind(host)
    if kind not in CONTAINERS:
        return
    nodes = (*host.glob("/dev/nvidia[0-9]*"), "/dev/nvidiactl", "/dev/nvidia-uvm")
    states = {node: refusal(host, node) for node in nodes}
    opened = [node for node, state in states.items() if state is not Refusal.ABSENT]
    for function in accelerators(host):
        if function.vendor != NVIDIA or function.driver not in {None, "nvidia"}:
            continue
        evidence = (function.evidence, *(f"{node}: {state}" for node, state in states.items() if state))
        if not opened:
            yield _not_given(host, kind, function, evidence)
        elif kind == "lxc" and states["/dev/nvidia-uvm"] in {Refusal.ABSENT, Refusal.CGROUP}:
            lxc = lxc_lines(host, (*opened, "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"))
            yield ROWS["CTR-16"].finding(function.address, evidence, lxc=lxc)
        elif Refusal.CGROUP in states.values():
            yield ROWS["CTR-04"].finding(function.address, evidence, lxc=lxc_lines(host, nodes))
        elif Refusal.LABEL in states.values():
            yield ROWS["CTR-11"].finding(function.address, evidence)
        else:
            yield from _capabilities(host, function)


def _not_given(host: Host, kind: str, function: PciFunction, evidence: tuple[str, ...]) -> Finding:
    asked = host.env("NVIDIA_VISIBLE_DEVICES")
    evidence = (
        *evidence,
        f"env NVIDIA_VISIBLE_DEVICES={asked}" if asked is not None else "env NVIDIA_VISIBLE_DEVICES is not set",
    )
    if asked in {"void", "none", ""} or (asked is None and kind != "kubernetes"):
        return ROWS["CTR-08"].finding(function.address, evidence)
    return ROWS["CTR-17" if kind == "kubernetes" else "CTR-01/inside"].finding(function.address, evidence)


def _capabilities(host: Host, function: PciFunction) -> Iterator[Finding]:
    wanted = host.env("NVIDIA_DRIVER_CAPABILITIES") or "compute"
    libraries = [*host.glob("/usr/lib/*/libcuda.so.1"), *host.glob("/usr/lib64/libcuda.so.1")]
    if not {"compute", "all"}.intersection(wanted.replace(" ", "").split(",")) and not libraries:
        evidence = (f"env NVIDIA_DRIVER_CAPABILITIES={wanted}", "no libcuda.so.1 in /usr/lib/* and /usr/lib64")
        yield ROWS["CTR-07"].finding(function.address, evidence)


CHECKS = (Check(ids=("CTR-01", "CTR-04", "CTR-07", "CTR-08", "CTR-11", "CTR-16", "CTR-17"), run=nvidia_nodes),)
