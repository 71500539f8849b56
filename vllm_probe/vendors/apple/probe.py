"""Lists the GPU of an Apple chip, whose memory is that of the machine."""

import re

from vllm_probe.core.device import Verdict
from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.system import Host
from vllm_probe.vendors.apple import PLUGIN
from vllm_probe.vendors.layer0 import Fact, reading, result
from vllm_probe.vendors.nodes import node_facts, read_identity
from vllm_probe.vendors.platforms import drm_nodes, first_line

_TIMEOUT_S = 5.0


def probe(host: Host) -> ProbeResult:
    """The Apple GPU of `host`."""
    nodes = drm_nodes(host, ("asahi",))
    if host.platform().system == "darwin":
        name, size = _sysctl(host, "machdep.cpu.brand_string"), _sysctl(host, "hw.memsize")
        told = re.fullmatch(r"[0-9]{1,18}", size[0] or "")
        reported: Fact = (int(told[0]), size[1]) if told else (None, "sysctl does not tell it")
        driver: Fact = ("Metal", "part of macOS")
    elif nodes:
        name, reported = first_line(host, "/proc/device-tree/model"), (None, "it is that of the machine")
        driver = ("asahi", "driver link")
    else:
        return result([])
    identity = read_identity(host)
    return result(
        [
            reading(
                "apple:0",
                PLUGIN.name,
                "gpu",
                verdict=Verdict(
                    code="unknown", reason="whether torch (mps) or another engine can use it was not checked"
                ),
                name=name,
                driver=driver,
                memory="unified",
                reported=reported,
                nodes=[node_facts(host, node, identity) for node in nodes],
            )
        ]
    )


def _sysctl(host: Host, key: str) -> Fact:
    answer = host.run(("sysctl", "-n", key), _TIMEOUT_S).stdout.strip()
    return (answer, f"sysctl {key}") if answer else (None, "sysctl does not tell it")
