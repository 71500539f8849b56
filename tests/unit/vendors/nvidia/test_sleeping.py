"""NVIDIA GPUs that nothing is asked of: asleep, of another driver, or of another vendor."""

from typing import Any

import pytest

from tests.unit.detect.scenes import host_of
from tests.unit.vendors.nvidia.cards import BUS, NODES, NVML, TWO, cards, found, libs
from vllm_probe.core import codec
from vllm_probe.core.errors import LibraryUnavailable
from vllm_probe.core.scene import Scene
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.nvidia import lib
from vllm_probe.vendors.nvidia.probe import probe


@pytest.mark.parametrize("files", [{"power_state": "D3cold\n"}, {"power/runtime_status": "suspended\n"}])
def test_nothing_is_asked_that_wakes_a_sleeping_gpu(files: dict[str, str]) -> None:
    class Asleep(ReplayHost):
        def library(self, name: str) -> Any:
            raise AssertionError(f"loaded {name}")

        def run(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("ran a command")

    machine = cards("0000:01:00.0", **files) | cards("0000:41:00.0") | NODES
    with pytest.raises(LibraryUnavailable, match="that wakes 0000:01:00"):
        lib.health(Asleep(codec.from_json(Scene, {"facts": {"files": machine}})))
    sleeping, other = probe(Asleep(codec.from_json(Scene, {"facts": {"files": machine}}))).devices
    assert "it is asleep" in sleeping.verdict.reason
    assert "because that wakes 0000:01:00.0" in other.verdict.reason
    assert (sleeping.verdict.code, other.verdict.code) == ("unknown", "unknown")


@pytest.mark.parametrize("driver", ["vfio-pci", None])
def test_a_sleeping_gpu_of_another_driver_or_of_none_leaves_the_others_usable(driver: str | None) -> None:
    files = TWO | {f"{BUS}/0000:01:00.0/driver": f"!link x/{driver}", f"{BUS}/0000:01:00.0/power_state": "D3cold"}
    files = {path: text for path, text in files.items() if driver or path != f"{BUS}/0000:01:00.0/driver"}
    loaded = libs(nvml=NVML | {"nvmlDeviceGetCount": 1})
    taken, other = found(files, libs=loaded).devices
    assert (taken.usable, other.usable) == (False, True)
    assert (taken.memory.reported_bytes, other.memory.reported_bytes) == (None, 24 << 30)
    assert list(lib.health(host_of(files=files, libs=loaded))["devices"]) == ["0000:41:00.0"]


def test_no_library_is_loaded_where_no_gpu_has_the_driver() -> None:
    class Unbound(ReplayHost):
        def library(self, name: str) -> Any:
            raise AssertionError(f"loaded {name}")

    files = cards("0000:01:00.0", driver="vfio-pci")
    assert "vfio-pci" in probe(Unbound(codec.from_json(Scene, {"facts": {"files": files}}))).devices[0].verdict.reason


@pytest.mark.parametrize(
    "files",
    [
        {"/proc/device-tree/compatible": "raspberrypi,5\0"},
        {"/dev/dxg": "!chr 10:125 0666 0:0", "/opt/rocm/lib/librocdxg.so.1": "!size 9"},
    ],
)
def test_no_driver_is_asked_where_no_gpu_of_nvidia_is_seen(files: dict[str, str]) -> None:
    class Foreign(ReplayHost):
        def isolated(self, function: str, timeout_s: float) -> Any:
            raise AssertionError(f"asked {function}")

    assert probe(Foreign(codec.from_json(Scene, {"facts": {"files": files}}))).devices == ()
