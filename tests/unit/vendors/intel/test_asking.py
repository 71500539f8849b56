"""What is asked of Intel GPUs and when; each layer that fails leaves the others' facts."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.unit.detect.scenes import HOSTS
from tests.unit.vendors.intel import outputs
from tests.unit.vendors.intel.machines import B580_BYTES, CARD, IGPU, MIB, host_of, level_zero, scene
from vllm_probe.core import codec
from vllm_probe.core.errors import LibraryTimeout, LibraryUnavailable
from vllm_probe.core.scene import Scene
from vllm_probe.core.system import CommandResult, Library
from vllm_probe.core.values import JsonValue
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.intel.probe import probe


class Sleeping(ReplayHost):
    """A machine on which only the integrated graphics may be opened or asked."""

    def ioctl(self, path: str, request: int, data: bytes, pointers: Sequence[int] = ()) -> bytes | None:
        assert path == "/dev/dri/renderD128"
        return super().ioctl(path, request, data, pointers)

    def open_errno(self, path: str) -> int:
        assert path != "/dev/dri/renderD129"
        return super().open_errno(path)

    def read_bytes(self, path: str, limit: int = 1 << 22) -> bytes | None:
        assert CARD not in path or not any(word in path for word in ("hwmon", "freq"))
        return super().read_bytes(path, limit)

    def library(self, name: str) -> Library:
        raise AssertionError(name)

    def run(self, argv: Sequence[str], *_: Any, **__: Any) -> Any:
        assert argv[0] == "intel_gpu_top"  # reads the counters of the card that it is given
        assert argv[-1] == "drm:/dev/dri/card0"
        return super().run(argv, 1)


def test_nothing_is_asked_that_wakes_a_card_in_d3cold() -> None:
    recorded = scene("intel-asleep")
    card = f"/sys/bus/pci/devices/{CARD}"
    recorded["facts"]["files"] |= {f"{card}/hwmon/hwmon1/name": "i915", f"{card}/drm/card1/gt_act_freq_mhz": "100"}
    found = {device.id: device for device in probe(Sleeping(codec.from_json(Scene, recorded))).devices}
    assert [device.verdict.code for device in found.values()] == ["unknown", "unknown"]
    assert "it is asleep" in found[CARD].verdict.reason
    assert f"that wakes {CARD}" in found[IGPU].verdict.reason
    assert found[IGPU].memory.kind == "shared"


class Slow(ReplayHost):
    """Seven cards whose counters answer when all are asked, a Level Zero that takes 7 s, and an xpu-smi that hangs."""

    counters = threading.Barrier(8, timeout=20)
    given: float | None = None

    def isolated(self, function: str, timeout_s: float) -> JsonValue:
        self.counters.wait()
        self.sleep(7)
        raise LibraryTimeout(f"{function} did not return within {timeout_s} s", hint="")

    def run(self, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None) -> CommandResult:
        if argv[0] == "intel_gpu_top":
            self.counters.wait()
        elif self.given is None:
            self.given = timeout_s
        return CommandResult(status="timeout")


def test_cards_are_asked_at_the_same_time_and_tools_within_what_is_left() -> None:
    files: dict[str, str] = {}
    for number in range(7):
        folder = f"/sys/bus/pci/devices/0000:{number:02x}:00.0"
        files |= {f"{folder}/class": "0x030000", f"{folder}/vendor": "0x8086", f"{folder}/device": "0x56c0"}
        files |= {f"{folder}/driver": "!link ../../../bus/pci/drivers/i915", f"{folder}/drm/card{number}/dev": ""}
    host = Slow(codec.from_json(Scene, {"facts": {"files": files}}))
    found = probe(host).devices
    assert len(found) == 7
    assert host.given == 2
    assert {device.details["xpu_smi_error"] for device in found} == {"xpu-smi did not answer in 2 s"}


def test_a_card_in_d3cold_is_asked_where_it_may_be_woken() -> None:
    host = host_of("intel-asleep", libs=level_zero(zeInit=0x78000001))
    host.wakes = True
    found = {device.id: device for device in probe(host).devices}
    assert [device.verdict.code for device in found.values()] == ["unusable", "unusable"]


class Broken(ReplayHost):
    """A machine whose Level Zero ends as `error` says."""

    error: Exception = LibraryUnavailable("", hint="")

    def isolated(self, function: str, timeout_s: float) -> JsonValue:
        raise self.error


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (LibraryTimeout("late", hint=""), "unknown", "Level Zero did not answer within 5 s"),
        (
            LibraryUnavailable("vllm_probe.vendors.intel.lib:read was killed by signal 11", hint=""),
            "unusable",
            "Level Zero was killed by signal 11",
        ),
        (LibraryUnavailable("libze_loader.so.1: no", hint=""), "unusable", "Level Zero is not there"),
    ],
)
def test_a_level_zero_that_fails_leaves_what_the_driver_tells(error: Exception, code: str, reason: str) -> None:
    host = Broken(codec.from_json(Scene, HOSTS["intel-arc-a770"]))
    host.error = error
    (card,) = probe(host).devices
    assert (card.usable, card.verdict.code) == (False, code)
    assert card.verdict.reason.startswith(reason)
    assert card.memory.used_bytes == 1024 * MIB
    assert card.name == "Intel Arc A770"


def test_a_driver_that_refuses_leaves_what_level_zero_tells() -> None:
    recorded = scene("intel-arc-a770")
    recorded["facts"]["ioctls"] = {}
    (card,) = probe(ReplayHost(codec.from_json(Scene, recorded))).devices
    assert card.usable
    assert (card.memory.reported_bytes, card.memory.used_bytes) == (16225243136, None)
    assert card.sources["/memory/reported_bytes"] == "Level Zero"


@pytest.mark.parametrize(
    ("node", "why"),
    [
        ("!chr 226:129 0660 0:44 EACCES", "may not open its render node"),
        ("!chr 226:129 0660 0:992 EPERM", "device cgroup"),
        ("!absent", "is not there"),
        ("!chr 226:129 0660 0:992", "does not answer"),
    ],
)
def test_why_the_driver_tells_no_memory_is_said(node: str, why: str) -> None:
    recorded = scene("intel-b580-xe", files={"/dev/dri/renderD129": node})
    recorded["facts"]["ioctls"] = {}
    result = probe(ReplayHost(codec.from_json(Scene, recorded)))
    at = next(i for i, device in enumerate(result.devices) if device.id == CARD)
    assert why in result.unknown[f"/{at}/memory/reported_bytes"]
    assert result.devices[at].memory.reported_bytes is None


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("!rc=-11\n", "killed by signal 11"),
        ("!timeout\n", "did not answer"),
        (f"!rc=1\n{outputs.ERROR}", "Level Zero Initialization Error"),
    ],
)
def test_a_tool_that_fails_says_nothing_of_the_device(output: str, why: str) -> None:
    result = probe(host_of("intel-b580-xe", commands={"xpu-smi discovery -j": output}))
    at = next(i for i, device in enumerate(result.devices) if device.id == CARD)
    assert result.devices[at].verdict.code == "usable"
    assert result.devices[at].memory.reported_bytes == B580_BYTES
    assert "CAP_PERFMON" in result.unknown[f"/{at}/memory/used_bytes"]
    assert why in str(result.devices[at].details["xpu_smi_error"])


def test_a_machine_without_a_driven_gpu_is_not_asked_for_level_zero() -> None:
    bus = f"/sys/bus/pci/devices/{CARD}/driver"
    recorded = scene("intel-arc-a770", files={bus: "!link ../../../bus/pci/drivers/vfio-pci"})
    host = Broken(codec.from_json(Scene, recorded))
    host.error = AssertionError("asked")
    (card,) = probe(host).devices
    assert "vfio-pci" in card.verdict.reason
