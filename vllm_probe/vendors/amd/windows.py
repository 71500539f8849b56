"""AMD GPUs behind Windows: what amd-smi or rocminfo names of those that /dev/dxg offers."""

import re
from typing import Any

from vllm_probe.core.system import Host
from vllm_probe.vendors.amd import PLUGIN, printed
from vllm_probe.vendors.amd.asking import ask_tools
from vllm_probe.vendors.layer0 import Fact, Reading
from vllm_probe.vendors.platforms import dxg

_ROCMINFO = ("rocminfo",)
_TIMEOUT_S = 2.5
_AGENT = re.compile(r"^Agent [0-9]{1,4}", re.MULTILINE)
_FIELD = re.compile(r"^  (Name|Marketing Name|Device Type|Compute Unit): +(\S.{0,120}?) *$", re.MULTILINE)


def behind_windows(host: Host) -> tuple[list[Reading], str, list[dict[str, Any]]]:
    """The GPUs, the tool that named them, and what it says of each, in the same order."""
    source, cards = next(ask_tools(host), ("rocminfo", []))
    if not cards:
        cards = parse_rocminfo(host.run(_ROCMINFO, _TIMEOUT_S).stdout)

    def fact(card: dict[str, Any], key: str) -> Fact:
        return card.get(key), source if key in card else f"{source} does not tell it"

    named = [(fact(card, "name"), fact(card, "arch"), (None, "Windows has the driver")) for card in cards]
    return dxg(host, PLUGIN.name, named), source, cards


def parse_rocminfo(text: str) -> list[dict[str, Any]]:
    """The agents that are GPUs, in HIP's order; none in an error text."""
    devices = []
    for agent in _AGENT.split(text)[1:]:
        fields: dict[str, str] = {}
        for key, value in _FIELD.findall(agent):
            fields.setdefault(key, value)
        if fields.get("Device Type") == "GPU":
            units = printed.number(fields.get("Compute Unit"))
            device = {
                "arch": printed.arch(fields.get("Name")),
                "name": printed.name(fields.get("Marketing Name")),
                "compute_units": int(units) if units and units > 0 else None,
            }
            devices.append(printed.known(device))
    return devices
