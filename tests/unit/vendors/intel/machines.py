"""Recorded machines with Intel GPUs, which the tests of this folder share and change."""

from copy import deepcopy
from typing import Any

from tests.unit.detect.scenes import HOSTS, STAMP
from vllm_probe.core import codec
from vllm_probe.core.device import Device, Inventory
from vllm_probe.core.scene import Scene
from vllm_probe.core.values import JsonValue
from vllm_probe.detect.inventory import take_inventory
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.intel.probe import probe
from vllm_probe.vendors.plugins import discover_plugins
from vllm_probe.vendors.registry import PortableDeviceManager

MIB = 1 << 20
IGPU, CARD = "0000:00:02.0", "0000:03:00.0"
B580_BYTES = 12216 * MIB


def scene(name: str, **facts: Any) -> dict[str, Any]:
    """The machine `name` with some facts added, or taken away where they are null."""
    found: dict[str, Any] = deepcopy(HOSTS[name])
    for kind, changes in facts.items():
        held = found["facts"].setdefault(kind, {})
        held |= changes
        for key in [key for key, value in changes.items() if value is None and kind != "libs"]:
            del held[key]
    return found


def host_of(name: str, **facts: Any) -> ReplayHost:
    return ReplayHost(codec.from_json(Scene, scene(name, **facts)))


def devices(name: str, **facts: Any) -> dict[str, Device]:
    return {device.id: device for device in probe(host_of(name, **facts)).devices}


def inventory(host: ReplayHost) -> Inventory:
    return take_inventory(host, PortableDeviceManager(host, discover_plugins(None).plugins), STAMP, lambda _: None)


def level_zero(**calls: JsonValue) -> dict[str, JsonValue]:
    return {"libze_loader.so.1": {"load": "ok", "path": None, "calls": calls}}
