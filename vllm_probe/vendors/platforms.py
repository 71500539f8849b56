"""Probes of layer 0: the bus, and the GPUs that it does not show, behind Windows and in a system on a chip."""

import re
from collections.abc import Mapping, Sequence

from vllm_probe.core.device import Verdict
from vllm_probe.core.plugin import Probe, VendorPlugin
from vllm_probe.core.system import Host
from vllm_probe.vendors.layer0 import Fact, Reading, bus_devices, node_verdict, reading, result
from vllm_probe.vendors.nodes import node_facts, read_identity

DXG = "/dev/dxg"
_WSL_LIBRARIES = {
    "nvidia": ("/usr/lib/wsl/lib/libcuda.so.1", "/usr/lib/*/libcuda.so.1", "/usr/lib64/libcuda.so.1"),
    "amd": ("/opt/rocm*/lib/librocdxg.so*", "/usr/lib/librocdxg.so*", "/usr/lib/*/librocdxg.so*"),
    "intel": ("/usr/lib/*/libze_intel_gpu.so*", "/usr/lib64/libze_intel_gpu.so*"),
}
"""What a vendor's GPU needs behind /dev/dxg. The first vendor that has it has a GPU there even where no tool lists one;
an image may hold the library of a later one without a GPU."""
_UNTOLD = "Windows has the driver, and no tool here told it"
_UNNAMED: tuple[Fact, Fact, Fact] = ((None, _UNTOLD),) * 3


def probe_of(plugin: VendorPlugin) -> Probe:
    """A probe that lists what the bus, /dev and Windows show of the vendor's devices."""
    return lambda host: result([*bus_devices(host, plugin), *dxg(host, plugin.name)])


def dxg_library(host: Host, vendor: str) -> str | None:
    """The library through which `vendor`'s GPUs behind /dev/dxg are used, null without it or without the node."""
    if not host.exists(DXG):
        return None
    return next((path for pattern in _WSL_LIBRARIES.get(vendor, ()) for path in host.glob(pattern)), None)


def dxg(host: Host, vendor: str, named: Sequence[tuple[Fact, Fact, Fact]] = ()) -> list[Reading]:
    """The GPUs of `vendor` behind /dev/dxg: one for each name, architecture and driver that a tool gave.

    Without any, one where `vendor` is the first that has its library there. The GPUs of a later vendor are counted
    apart from those of the first, so that neither changes the other's addresses.
    """
    library = dxg_library(host, vendor)
    if library is None:
        return []
    first = next(each for each in _WSL_LIBRARIES if dxg_library(host, each)) == vendor
    node = node_facts(host, DXG, read_identity(host))
    verdict = node_verdict(host, node, f"Windows offers it to Linux in {DXG}")
    return [
        reading(
            f"dxg:{i}" if first else f"dxg:{vendor}-{i}",
            vendor,
            "gpu",
            verdict=verdict,
            name=name,
            arch=arch,
            driver=driver,
            nodes=[node],
            details={"library": library},
        )
        for i, (name, arch, driver) in enumerate(named or ([_UNNAMED] if first else []))
    ]


def drm_nodes(host: Host, drivers: tuple[str, ...]) -> dict[str, str]:
    """Render nodes of devices that are bound to one of `drivers`, with the driver."""
    links = {
        path.split("/")[4]: (host.readlink(path) or "").rpartition("/")[2]
        for path in host.glob("/sys/class/drm/renderD*/device/driver")
    }
    return {f"/dev/dri/{name}": driver for name, driver in links.items() if driver in drivers}


def first_line(host: Host, *paths: str) -> Fact:
    """The first of `paths` that can be read, its first line without the NUL that ends a device tree's text."""
    for path in paths:
        text = re.split(r"[\n\0]", (host.read_text(path) or "").strip())[0].strip()
        if text:
            return text, path
    return None, "the system does not tell it"


def phone_gpu(
    host: Host,
    id_: str,
    vendor: str,
    name: Fact,
    nodes: Mapping[str, str],
    arch: Fact = (None, "nothing here tells it"),
) -> Reading:
    """An integrated GPU that no engine here has a backend for, with its nodes and their driver."""
    identity = read_identity(host)
    reason = "neither torch nor vLLM has a backend for it: OpenCL and Vulkan programs may use it"
    return reading(
        id_,
        vendor,
        "igpu",
        verdict=Verdict(code="unusable", reason=reason),
        name=name,
        arch=arch,
        driver=(next(iter(nodes.values())), "device node"),
        memory="shared",
        nodes=[node_facts(host, node, identity) for node in nodes],
    )
