"""Lists the Adreno GPU of a Qualcomm chip, by its KGSL or its msm driver."""

import re

from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.system import Host
from vllm_probe.vendors.adreno import PLUGIN
from vllm_probe.vendors.layer0 import Fact, result
from vllm_probe.vendors.platforms import drm_nodes, first_line, phone_gpu

_MODEL = "/sys/class/kgsl/kgsl-3d0/gpu_model"
_NODE = "/dev/kgsl-3d0"


def probe(host: Host) -> ProbeResult:
    """The Adreno GPU of `host`; an exact path is asked, since Android lets nobody list the folder."""
    model, source = first_line(host, _MODEL)
    if model or host.exists(_NODE):
        number = re.match(r"Adreno\D*(\d+)", model or "")
        name: Fact = (f"Qualcomm Adreno {number[1]}", source) if number else (model, source)
        arch: Fact = (model.lower(), source) if model else (None, source)
        return result([phone_gpu(host, "kgsl:0", PLUGIN.name, name, {_NODE: "kgsl"}, arch)])
    nodes = drm_nodes(host, ("msm", "msm_dpu", "adreno"))
    name = first_line(host, "/proc/device-tree/model")
    return result([phone_gpu(host, "adreno:0", PLUGIN.name, name, nodes)] if nodes else [])
