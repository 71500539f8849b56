"""One machine with cards of four vendors, put together from recorded ones."""

import json
from collections.abc import Sequence
from typing import Any

from tests.unit.detect.scenes import HOSTS
from vllm_probe.core import codec
from vllm_probe.core.scene import Scene
from vllm_probe.core.system import CommandResult
from vllm_probe.core.values import JsonValue
from vllm_probe.host.replay import ReplayHost

PARTS = ("nvidia-server", "ascend-centos7", "amd-workstation", "intel-arc-a770")
CARDS = {
    "nvidia": ("0001:00:00.0", "0002:00:00.0"),
    "ascend": ("0000:01:00.0", "0000:81:00.0"),
    "amd": ("0000:03:00.0", "0000:0d:00.0"),
    "intel": ("0000:e3:00.0",),
}
_MOVED = {"0000:03:00.0": "0000:e3:00.0", "renderD128": "renderD140", "card1": "card9"}
"""Where the Arc A770 has to go, since other cards have its place."""


def mixed_facts() -> dict[str, Any]:
    """Facts of a machine with all the cards of `PARTS`."""
    facts: dict[str, Any] = {"files": {}, "commands": {}, "env": {}, "libs": {}, "ioctls": {}}
    for name in PARTS:
        text = json.dumps(HOSTS[name]["facts"])
        if name == "intel-arc-a770":
            for old, new in _MOVED.items():
                text = text.replace(old, new)
        part = json.loads(text)
        if name == "intel-arc-a770":
            part["libs"]["libze_loader.so.1"]["calls"]["zeDevicePciGetPropertiesExt"]["bus"] = 0xE3
        for key in facts:
            facts[key] |= part.get(key, {})
    return facts


def mixed_host(facts: dict[str, Any] | None = None) -> "WatchedHost":
    """That machine, or one with other `facts`."""
    return WatchedHost(codec.from_json(Scene, {"facts": facts or mixed_facts()}))


class WatchedHost(ReplayHost):
    """A recorded machine that remembers what it was asked and can be made to hang."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.asked: list[tuple[str, str, float]] = []

    def isolated(self, function: str, timeout_s: float) -> JsonValue:
        self.asked.append(("isolated", function, timeout_s))
        return super().isolated(function, timeout_s)

    def run(self, argv: Sequence[str], timeout_s: float, env: Any = None) -> CommandResult:
        self.asked.append(("run", " ".join(argv), timeout_s))
        return super().run(argv, timeout_s, env)

    def ioctl(self, path: str, request: int, data: bytes, pointers: Sequence[int] = ()) -> bytes | None:
        self.asked.append(("ioctl", path, 0))
        return super().ioctl(path, request, data, pointers)

    def open_errno(self, path: str) -> int:
        self.asked.append(("open", path, 0))
        return super().open_errno(path)
