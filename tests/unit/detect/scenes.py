"""Diagnoses and inventories of recorded hosts, as the command line takes them."""

import json
from pathlib import Path
from typing import Any

from vllm_probe.core import codec
from vllm_probe.core.device import Diagnosis, Inventory
from vllm_probe.core.document import Stamp
from vllm_probe.core.scene import Scene
from vllm_probe.detect.doctor import diagnose
from vllm_probe.detect.inventory import take_inventory
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.cpu import PLUGIN
from vllm_probe.vendors.plugins import discover_plugins
from vllm_probe.vendors.registry import PortableDeviceManager

ROOT = Path(__file__).resolve().parents[3]
HOSTS = {path.parent.name: json.loads(path.read_text()) for path in sorted(ROOT.glob("tests/hosts/*/scene.json"))}
_SHARED = ROOT.parent / "shared" / "data" / "scenes.jsonl"
SHARED = [json.loads(line) for line in _SHARED.read_text().splitlines()] if _SHARED.exists() else []
STAMP = Stamp(created_at="2026-01-02T03:04:05Z", tool_version="0", host_fingerprint="sha256:0")


def host_of(**facts: Any) -> ReplayHost:
    """A recorded host that answers with `facts` alone."""
    return ReplayHost(codec.from_json(Scene, {"facts": facts}))


def manager_of(host: ReplayHost) -> PortableDeviceManager:
    return PortableDeviceManager(host, (PLUGIN,))


def diagnosis_of(scene: dict[str, Any]) -> Diagnosis:
    host = ReplayHost(codec.from_json(Scene, scene))
    return diagnose(host, manager_of(host), STAMP, transcripts=host.transcripts())


def full_diagnosis_of(scene: dict[str, Any]) -> Diagnosis:
    """As `diagnosis_of`, with the plug-ins of every vendor."""
    host = ReplayHost(codec.from_json(Scene, scene))
    manager = PortableDeviceManager(host, discover_plugins(None).plugins)
    return diagnose(host, manager, STAMP, transcripts=host.transcripts())


def inventory_of(scene: dict[str, Any]) -> Inventory:
    host = ReplayHost(codec.from_json(Scene, scene))
    return take_inventory(host, manager_of(host), STAMP, lambda _: None)
