"""Lists the Mali GPU of an Arm chip, by Arm's own driver or one of Linux."""

from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.system import Host
from vllm_probe.vendors.layer0 import result
from vllm_probe.vendors.mali import PLUGIN
from vllm_probe.vendors.platforms import drm_nodes, first_line, phone_gpu

_NODE = "/dev/mali0"


def probe(host: Host) -> ProbeResult:
    """The Mali GPU of `host`."""
    nodes = {_NODE: "mali"} if host.exists(_NODE) else drm_nodes(host, ("panthor", "panfrost", "lima"))
    name = first_line(host, "/sys/class/misc/mali0/device/gpuinfo", "/proc/device-tree/model")
    return result([phone_gpu(host, "mali:0", PLUGIN.name, name, nodes)] if nodes else [])
