"""Verdicts, values and numbers of NVIDIA GPUs on recorded machines."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.detect.scenes import HOSTS, SHARED, host_of
from vllm_probe.core import codec
from vllm_probe.core.device import Device
from vllm_probe.core.errors import LibraryUnavailable
from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.scene import Scene
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.nvidia import lib
from vllm_probe.vendors.nvidia.probe import probe

BUS = "/sys/bus/pci/devices"
NODES = {f"/dev/{name}": "!chr 195:0 0666 0:0" for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")}
CUDA = {"cuInit": 0, "cuDriverGetVersion": 12080}
NVML = {
    "nvmlInit": 0,
    "nvmlSystemGetDriverVersion": "570.12",
    "nvmlDeviceGetName": "NVIDIA GeForce RTX 3090",
    "nvmlDeviceGetMemoryInfo": {"total": 24 << 30, "reserved": 1 << 28, "free": 20 << 30, "used": 3 << 30},
}
FIXTURES = {path.stem: path.read_text(encoding="utf-8") for path in (Path(__file__).parent / "fixtures").iterdir()}


def cards(*addresses: str, driver: str = "nvidia", device: str = "0x2204", **more: str) -> dict[str, str]:
    files = {"class": "0x030000", "vendor": "0x10de", "device": device, "driver": f"!link x/{driver}"}
    return {f"{BUS}/{address}/{name}": text for address in addresses for name, text in (files | more).items()}


ONE = cards("0000:01:00.0") | NODES
TWO = cards("0000:01:00.0", "0000:41:00.0") | NODES


def libs(cuda: dict[str, Any] | None = CUDA, nvml: dict[str, Any] | None = NVML) -> dict[str, Any]:
    called = {"libcuda.so.1": cuda, "libnvidia-ml.so.1": nvml}
    return {name: None if calls is None else {"load": "ok", "calls": calls} for name, calls in called.items()}


def found(files: dict[str, str], **facts: Any) -> ProbeResult:
    return probe(host_of(files=files, **{"libs": libs()} | facts))


def the_gpu(files: dict[str, str] = ONE, **facts: Any) -> Device:
    (device,) = found(files, **facts).devices
    return device


def test_the_libraries_give_a_device_its_values_with_their_sources() -> None:
    device = the_gpu(libs=libs(cuda=CUDA | {"compute_capability": 86}))
    assert (device.name, device.arch, device.driver) == ("NVIDIA GeForce RTX 3090", "sm_86", "nvidia 570.12")
    assert (device.memory.reported_bytes, device.memory.usable_bytes, device.memory.used_bytes) == (
        24 << 30,
        20 << 30,
        3 << 30,
    )
    assert (device.usable, device.verdict.code) == (True, "usable")
    assert device.details["cuda_version"] == "12.8"
    assert device.sources["/name"] == "NVML"
    assert device.sources["/arch"] == "libcuda"


def test_a_reported_machine_whose_driver_works_is_usable() -> None:
    scenes = [scene for scene in SHARED if scene["id"] == "S28"]
    for scene in scenes or [{"facts": {"files": ONE, "libs": libs(nvml=None)}}]:
        (device,) = probe(ReplayHost(codec.from_json(Scene, {"facts": scene["facts"]}))).devices
        assert device.usable


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (9, "the driver is not loaded; run `sudo modprobe nvidia` on the host"),
        (4, "this process may not use the driver"),
        (15, "fallen off the bus; reboot"),
        (16, "has to be reset; stop what uses it and reboot"),
        (18, "of different versions; reboot, or stop what uses the GPU and run `sudo rmmod"),
        (999, "recreate the container"),
        (54321, "NVML fails with status 54321"),
    ],
)
def test_a_status_of_nvml_is_a_verdict_with_the_way_out(status: int, reason: str) -> None:
    device = the_gpu(libs=libs(cuda={"cuInit": 999}, nvml={"nvmlInit": status}))
    assert (device.usable, device.verdict.code) == (False, "unusable")
    assert reason in device.verdict.reason
    assert device.name == "NVIDIA GeForce RTX 3090"  # of the id table


@pytest.mark.parametrize("status", [15, 16])
def test_a_device_that_nvml_cannot_reach_is_unusable_though_cuda_starts(status: int) -> None:
    device = the_gpu(libs=libs(nvml=NVML | {"nvmlDeviceGetHandleByIndex": status}))
    assert (device.usable, device.verdict.code) == (False, "unusable")


def test_lost_devices_are_told_apart_by_the_order_of_the_bus() -> None:
    handles = {"nvmlDeviceGetHandleByIndex_v2(1)": {"status": 15, "outs": ["00" * 8]}}
    first, second = found(TWO, libs=libs(nvml=NVML | {"nvmlDeviceGetCount": 2} | handles)).devices
    assert (first.usable, second.usable) == (True, False)
    assert second.verdict.reason.startswith("the GPU is lost")


def test_nvml_that_fails_beside_a_cuda_that_works_is_a_limit() -> None:
    device = the_gpu(libs=libs(nvml={"nvmlInit": 999}))
    assert (device.usable, device.verdict.code) == (True, "limited")
    assert "NVML fails although CUDA works" in device.verdict.reason


@pytest.mark.parametrize("calls", [{"nvmlDeviceGetName": "timeout"}, {"nvmlDeviceGetHandleByIndex": 15}])
def test_why_there_is_no_memory_is_told_of_a_card_that_does_not_answer(calls: dict[str, Any]) -> None:
    answer = found(ONE, libs=libs(nvml=NVML | calls))
    assert answer.devices[0].memory.reported_bytes is None
    assert answer.unknown["/0/memory/reported_bytes"] in {
        "NVML: nvmlDeviceGetName does not return",
        "NVML: the GPU is lost: it has fallen off the bus",
    }


def test_nvml_that_hangs_over_a_card_that_cuda_runs_is_a_limit_and_its_health_is_that_it_is_lost() -> None:
    nvml = NVML | {"nvmlDeviceGetName": "timeout", "nvmlDeviceGetPciInfo": {"bus": 1}}
    device = the_gpu(libs=libs(nvml=nvml))
    assert (device.usable, device.verdict.code) == (True, "limited")
    assert device.verdict.reason.endswith("vLLM needs both: nvmlDeviceGetName does not return")
    hung = {"nvmlInit": 0, "nvmlDeviceGetMemoryInfo": "timeout", "nvmlDeviceGetPciInfo": {"bus": 1}}
    health = lib.health(host_of(files=ONE, libs=libs(nvml=hung)))
    assert health["devices"]["0000:01:00.0"] == {"lost": "nvmlDeviceGetMemoryInfo_v2 does not return"}


def test_nvidia_smi_is_asked_for_a_card_over_which_nvml_hangs() -> None:
    answer = found(
        cards("0000:3b:00.0", device="0x1bb3") | NODES,
        libs=libs(nvml=NVML | {"nvmlDeviceGetName": "timeout", "nvmlDeviceGetPciInfo": {"bus": 0x3B}}),
        commands={"nvidia-smi -q -x": FIXTURES["v10"]},
    )
    (device,) = answer.devices
    assert (device.name, device.memory.reported_bytes) == ("Tesla P4", 7611 << 20)
    assert "/0/memory/reported_bytes" not in answer.unknown


LOST = "Unable to determine the device handle for GPU 0000:41:00.0: GPU is lost.  Reboot the system to recover this GPU"


def test_a_lost_card_that_nvidia_smi_names_condemns_no_other() -> None:
    first, second = found(TWO, libs=libs(nvml=None), commands={"nvidia-smi": f"!rc=15\n{LOST}\n"}).devices
    assert (first.usable, second.usable) == (True, False)
    assert second.verdict.reason.startswith("the GPU is lost")


@pytest.mark.parametrize("after", ["", "WARNING: infoROM is corrupted at gpu 0000:01:00.0\n", f"{LOST}\n"])
@pytest.mark.parametrize("said", ["GPU is lost", "N/A"])
def test_what_nvidia_smi_tells_before_it_fails_counts(after: str, said: str) -> None:
    xml = f"""<?xml version="1.0" ?>
<nvidia_smi_log><driver_version>550.54.15</driver_version>
<gpu id="00000000:01:00.0"><product_name>NVIDIA A2</product_name><ecc_errors>Not Supported</ecc_errors>
<fb_memory_usage><total>15356 MiB</total><used>0 MiB</used><free>15000 MiB</free></fb_memory_usage></gpu>
<gpu id="00000000:41:00.0"><product_name>{said}</product_name><uuid>{said}</uuid>
<fb_memory_usage><total>{said}</total></fb_memory_usage></gpu></nvidia_smi_log>
"""
    commands = {"nvidia-smi -q -x": f"!rc=14\n{xml}{after}"}
    first, second = found(TWO, libs=libs(nvml=None), commands=commands).devices
    assert (first.name, first.memory.reported_bytes) == ("NVIDIA A2", 15356 << 20)
    assert first.verdict.code == "usable"
    assert second.name == "NVIDIA GeForce RTX 3090"  # of the id table
    assert second.usable == (said == "N/A" and "lost" not in after)


def test_a_memory_of_no_bytes_is_unknown() -> None:
    none = {"nvmlDeviceGetMemoryInfo": {"total": 0, "free": 0, "used": 0}}
    answer = found(ONE, libs=libs(nvml=NVML | none))
    memory = answer.devices[0].memory
    assert (memory.reported_bytes, memory.usable_bytes, memory.used_bytes) == (None, None, None)
    assert answer.unknown["/0/memory/used_bytes"] == "NVML: the memory is said to have 0 bytes"


def test_a_failure_of_nvidia_smi_is_read_where_there_is_no_nvml() -> None:
    said = "!rc=18\nFailed to initialize NVML: Driver/library version mismatch\n"
    device = the_gpu(libs=libs(cuda={"cuInit": 999}, nvml=None), commands={"nvidia-smi -q -x": said})
    assert "of different versions" in device.verdict.reason


def test_nvidia_smi_gives_the_values_where_there_is_no_nvml() -> None:
    files = cards("0000:3b:00.0", device="0x1bb3") | NODES
    answer = found(files, libs=libs(nvml=None), commands={"nvidia-smi -q -x": FIXTURES["v10"]})
    (device,) = answer.devices
    assert (device.driver, device.memory.reported_bytes) == ("nvidia 470.57.02", 7611 << 20)
    assert device.sources["/memory/reported_bytes"] == "nvidia-smi"
    assert device.details["throttled"] == ["hardware_thermal"]
    assert device.links == (
        {
            "kind": "pcie",
            "max_speed": "8.0 GT/s PCIe",
            "current_speed": "2.5 GT/s PCIe",
            "max_width": 16,
            "current_width": 8,
        },
    )


def test_nvidia_smi_is_left_alone_where_nvml_told_enough() -> None:
    class NoTool(ReplayHost):
        def run(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("ran a command")

    facts = {"files": ONE, "libs": libs()}
    assert probe(NoTool(codec.from_json(Scene, {"facts": facts}))).devices[0].usable


@pytest.mark.parametrize(
    "lacking",
    [
        {"nvmlDeviceGetName": None},
        {"nvmlDeviceGetMemoryInfo": 999},
        {"nvmlDeviceGetMigMode": 1},
        {"nvmlDeviceGetName": "GRID T4-8Q"},
    ],
)
def test_nvidia_smi_is_asked_for_what_nvml_left_out(lacking: dict[str, Any]) -> None:
    asked = []

    class Tool(ReplayHost):
        def run(self, argv: Any, timeout_s: float, env: Any = None) -> Any:
            asked.append(argv[0])
            return super().run(argv, timeout_s, env)

    facts = {"files": ONE, "libs": libs(nvml={key: each for key, each in (NVML | lacking).items() if each is not None})}
    probe(Tool(codec.from_json(Scene, {"facts": facts})))
    assert asked


@pytest.mark.parametrize("broken", [{"nvmlInit": "timeout"}, {"nvmlInit": 0, "nvmlDeviceGetName": "timeout"}, None])
def test_an_nvml_that_hangs_or_is_missing_hides_neither_the_device_nor_what_cuda_says(
    broken: dict[str, Any] | None,
) -> None:
    answer = found(ONE, libs=libs(cuda=CUDA | {"compute_capability": 86}, nvml=broken))
    (device,) = answer.devices
    assert (device.usable, device.arch) == (True, "sm_86")
    why = ("NVML did not answer", "NVML: nvmlDeviceGetName does not return", "libnvidia-ml.so.1: cannot")
    assert answer.unknown["/0/memory/reported_bytes"].startswith(why)


def test_a_cuda_that_hangs_leaves_the_values_of_nvml_and_no_verdict() -> None:
    device = the_gpu(libs=libs(cuda={"cuInit": "timeout"}))
    assert (device.usable, device.verdict.code) == (False, "unknown")
    assert device.memory.reported_bytes == 24 << 30


def test_every_tool_that_hangs_leaves_the_device_of_the_bus() -> None:
    host = host_of(
        files=ONE,
        libs=libs(cuda={"cuInit": "timeout"}, nvml={"nvmlInit": "timeout"}),
        commands={"nvidia-smi -q -x": "!timeout"},
    )
    (device,) = probe(host).devices
    assert (device.id, device.name, device.usable) == ("0000:01:00.0", "NVIDIA GeForce RTX 3090", False)


def test_one_value_that_nvml_refuses_is_unknown_with_the_reason_and_the_others_stay() -> None:
    answer = found(ONE, libs=libs(nvml=NVML | {"nvmlDeviceGetUtilizationRates": 999, "nvmlDeviceGetTemperature": 30}))
    (device,) = answer.devices
    assert device.details["utilization"] is None
    assert answer.unknown["/0/details/utilization"].startswith("NVML: NVML fails without a reason")
    assert device.details["temperature_c"] == 30


def test_what_a_device_cannot_have_is_left_out_and_what_failed_is_told() -> None:
    refused = {"nvmlDeviceGetMemoryBusWidth": {"status": 3, "outs": ["00000000"]}}
    calls = {f"{name}(None)": each for name, each in refused.items()}
    answer = found(ONE, libs=libs(nvml=NVML | calls))
    assert "/0/details/bus_width_bits" not in answer.unknown
    assert "bus_width_bits" not in answer.devices[0].details
    assert answer.unknown["/0/details/compute_mode"].endswith("no such function")
    calls = {f"{name}(None)": each | {"status": 999} for name, each in refused.items()}
    assert "without a reason" in found(ONE, libs=libs(nvml=NVML | calls)).unknown["/0/details/bus_width_bits"]


@pytest.mark.parametrize(
    ("mask", "visible"),
    [
        (None, True),
        ("MIG-00010203-0405-0607-0809-0a0b0c0d0e0f", True),
        ("MIG-ffffffff-0405-0607-0809-0a0b0c0d0e0f", False),
    ],
)
def test_a_mig_instance_is_known_to_cuda_by_its_uuid(mask: str | None, visible: object) -> None:
    uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f" if visible else "ffffffff-0405-0607-0809-0a0b0c0d0e0f"
    instance = {
        "nvmlDeviceGetMigMode": 1,
        "nvmlDeviceGetMaxMigDeviceCount": 1,
        "nvmlDeviceGetMigDeviceHandleByIndex": 0,
        "nvmlDeviceGetGpuInstanceId": 3,
        "nvmlDeviceGetComputeInstanceId": 0,
        "nvmlDeviceGetUUID": "MIG-00010203-0405-0607-0809-0a0b0c0d0e0f",
    }
    bytes_ = {"cuDeviceGetUuid_v2(0)": {"status": 0, "outs": [uuid.replace("-", "")]}}
    cuda = CUDA | {"cuDeviceGetCount": 1, "cuDeviceGetPCIBusId": "0000:01:00.0", **bytes_}
    env = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
    parent, part = found(ONE, libs=libs(cuda=cuda, nvml=NVML | instance), env=env).devices
    assert (part.id, part.usable, part.visible) == ("0000:01:00.0/mig-3.0", True, visible)
    assert ("cuda" in part.indices, "cuda" in parent.indices, parent.usable) == (visible, False, False)


def test_sources_that_disagree_are_both_shown() -> None:
    files = ONE | {"/proc/driver/nvidia/version": "Kernel Module  570.12  Release"}
    device = the_gpu(
        files,
        libs=libs(cuda=CUDA | {"compute_capability": 89}, nvml=NVML | {"nvmlDeviceGetCudaComputeCapability": [8, 6]}),
    )
    assert device.arch == "sm_86"
    assert device.details["conflicts"] == {"/arch": [{"value": "sm_89", "source": "libcuda"}]}


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


def test_a_jetson_is_asked_though_the_card_beside_it_belongs_to_a_virtual_machine() -> None:
    files = cards("0000:01:00.0", driver="vfio-pci") | {"/proc/device-tree/compatible": "nvidia,tegra234\0"}
    card, module = found(files, libs=libs(nvml=None)).devices
    assert (card.usable, module.id, module.usable) == (False, "tegra:0", True)


def test_gpus_behind_windows_keep_their_architectures_where_cuda_orders_them_otherwise() -> None:
    files = {"/dev/dxg": "!chr 10:125 0666 0:0", "/usr/lib/wsl/lib/libcuda.so.1": "!size 9"}
    cuda = (
        CUDA | {"cuDeviceGetCount": 2} | {f"cuDeviceGet({i})": {"status": 0, "outs": [f"0{i}000000"]} for i in (0, 1)}
    )
    cuda |= {
        f"cuDeviceGetPCIBusId(32, {i})": {"status": 0, "outs": [f"0000:0{2 - i}:00.0".encode().hex() + "00" * 20]}
        for i in (0, 1)
    }
    cuda |= {
        f"cuDeviceGetAttribute({a}, {d})": {"status": 0, "outs": [f"0{v}000000"]}
        for d, two in enumerate(((8, 9), (6, 1)))
        for a, v in zip((75, 76), two, strict=True)
    }
    rows = [
        f"<gpu id='00000000:0{i}:00.0'><product_name>{name}</product_name></gpu>"
        for i, name in ((1, "Old"), (2, "New"))
    ]
    smi = f"<nvidia_smi_log>{''.join(rows)}</nvidia_smi_log>"
    devices = found(files, libs=libs(cuda=cuda, nvml=None), commands={"nvidia-smi -q -x": smi}).devices
    assert [(device.name, device.arch, device.indices["cuda"]) for device in devices] == [
        ("Old", "sm_61", 1),
        ("New", "sm_89", 0),
    ]


def test_a_value_without_an_address_is_that_of_the_card_that_the_driver_has() -> None:
    files = cards("0000:01:00.0", driver="vfio-pci") | cards("0000:41:00.0", device="0xfffe") | NODES
    libraries = libs(
        cuda=CUDA | {"cuDeviceGetCount": 1, "compute_capability": 89}, nvml=NVML | {"nvmlDeviceGetCount": 1}
    )
    taken, other = found(files, libs=libraries).devices
    assert (taken.memory.reported_bytes, other.memory.reported_bytes) == (None, 24 << 30)
    assert (taken.arch, other.arch) == ("sm_86", "sm_89")


def test_values_without_addresses_are_told_in_the_order_of_the_bus() -> None:
    files = cards("0000:01:00.0", "0000:41:00.0", device="0xfffe") | NODES
    libraries = libs(cuda=CUDA | {"cuDeviceGetCount": 2, "compute_capability": 89}, nvml=None)
    assert [device.arch for device in found(files, libs=libraries).devices] == ["sm_89", "sm_89"]


def test_a_card_without_a_driver_does_not_take_a_number_from_the_others() -> None:
    files = cards("0000:01:00.0", driver="vfio-pci") | cards("0000:41:00.0") | NODES
    taken, other = found(
        files, libs=libs(nvml=NVML | {"nvmlDeviceGetCount": 1, "nvmlDeviceGetPciInfo": {"bus": 0x41}})
    ).devices
    assert (taken.usable, taken.indices) == (False, {})
    assert (other.usable, other.indices) == (True, {"nvml": 0, "cuda": 0})


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (None, [(True, 0), (True, 1)]),
        ("1", [(False, None), (True, 0)]),
        ("1,0", [(True, 1), (True, 0)]),
        ("0", [(True, 0), (False, None)]),
        ("", [(False, None), (False, None)]),
        ("7", [(False, None), (False, None)]),
    ],
)
def test_what_a_variable_hides_stays_usable_and_is_told(
    mask: str | None, expected: list[tuple[bool, int | None]]
) -> None:
    shown = mask is None or mask in {"1", "1,0", "0"}
    cuda = CUDA if shown else {"cuInit": 100}
    devices = found(TWO, libs=libs(cuda=cuda), env={} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}).devices
    assert [(device.visible, device.indices.get("cuda")) for device in devices] == expected
    assert all(device.usable for device in devices)
    hidden = [device for device in devices if not device.visible]
    assert all(device.verdict.code == "hidden" for device in hidden)
    assert all(f"CUDA_VISIBLE_DEVICES={mask}" in device.verdict.reason for device in hidden)


def test_a_variable_does_not_hide_that_a_driver_is_broken() -> None:
    hidden = {"CUDA_VISIBLE_DEVICES": "1"}
    broken, _ = found(TWO, libs=libs(cuda={"cuInit": 803}), env=hidden).devices
    assert (broken.usable, broken.verdict.code) == (False, "unusable")
    failing, _ = found(TWO, libs=libs(nvml={"nvmlInit": 999}), env=hidden).devices
    assert (failing.usable, failing.verdict.code) == (False, "hidden")
    assert "was not checked" in failing.verdict.reason


def test_the_cuda_driver_tells_its_own_numbers() -> None:
    addresses = {f"cuDeviceGetPCIBusId(32, {i})": address for i, address in enumerate(("0000:41:00.0", "0000:01:00.0"))}
    calls = {key: {"status": 0, "outs": [address.encode().hex() + "00" * 20]} for key, address in addresses.items()}
    devices = found(TWO, libs=libs(cuda=CUDA | calls | {"cuDeviceGetCount": 2})).devices
    assert [device.indices["cuda"] for device in devices] == [1, 0]
    assert devices[0].sources["/indices/cuda"] == "libcuda"


def test_a_device_that_the_cuda_driver_leaves_out_is_unusable() -> None:
    cuda = CUDA | {"cuDeviceGetCount": 1, "cuDeviceGetPCIBusId": "0000:41:00.0"}
    first, second = found(TWO, libs=libs(cuda=cuda)).devices
    assert (first.usable, second.usable) == (False, True)
    assert "the CUDA driver does not list it" in first.verdict.reason


EIGHT = tuple(f"0000:{bus:02x}:00.0" for bus in range(0x10, 0x90, 0x10))
GIVEN = EIGHT[3]
POD = cards(*EIGHT, device="0x2330") | {
    "/.dockerenv": "",
    "/dev/nvidia3": "!chr 195:3 0666 0:0",
    "/dev/nvidiactl": "!chr 195:255 0666 0:0",
    "/dev/nvidia-uvm": "!chr 236:0 0666 0:0",
}
TOLD = f"/proc/driver/nvidia/gpus/{GIVEN}/information"
INFORMATION = {TOLD: "Model: \t NVIDIA H100\nDevice Minor: \t 3\n"}
ONE_LISTED = CUDA | {"cuDeviceGetCount": 1}


@pytest.mark.parametrize(
    ("files", "cuda"),
    [
        (INFORMATION, ONE_LISTED),
        (INFORMATION, ONE_LISTED | {"cuDeviceGetPCIBusId": GIVEN}),
        ({}, ONE_LISTED | {"cuDeviceGetPCIBusId": GIVEN}),
    ],
)
def test_a_container_with_one_gpu_of_eight_was_not_given_the_others(
    files: dict[str, str], cuda: dict[str, Any]
) -> None:
    devices = {device.id: device for device in found(POD | files, libs=libs(cuda, None)).devices}
    given = devices.pop(GIVEN)
    assert (given.usable, given.indices) == (True, {"cuda": 0})
    assert {device.verdict.code for device in devices.values()} == {"unusable"}
    for device in devices.values():
        assert device.verdict.reason.startswith(
            ("this container was not given it;", "this container was not given its node;")
        )
        assert "NVIDIA_VISIBLE_DEVICES=all" in device.verdict.reason
        assert device.indices == {}


def test_of_more_gpus_than_the_driver_counts_those_are_taken_that_nvidia_smi_tells_of() -> None:
    text = "\n".join(
        (
            "<nvidia_smi_log><driver_version>570.1</driver_version>",
            f'<gpu id="0000{GIVEN}"><product_name>NVIDIA H100</product_name>',
            "<fb_memory_usage><total>81559 MiB</total></fb_memory_usage></gpu></nvidia_smi_log>",
        )
    )
    devices = found(POD, libs=libs(ONE_LISTED, None), commands={"nvidia-smi -q -x": text}).devices
    assert [device.id for device in devices if device.usable] == [GIVEN]
    assert {device.id: device.indices for device in devices if device.indices} == {GIVEN: {"cuda": 0}}


def test_of_more_gpus_than_the_driver_counts_none_is_called_usable_where_nothing_tells_which() -> None:
    devices = found(POD, libs=libs(ONE_LISTED, None)).devices
    assert {(device.verdict.code, device.usable) for device in devices} == {("unknown", False)}
    assert "does not tell which" in devices[0].verdict.reason
    assert all(device.indices == {} for device in devices)


def test_cards_that_differ_have_no_number_until_the_driver_tells_it() -> None:
    files = cards("0000:01:00.0") | cards("0000:41:00.0", device="0x2684") | NODES
    answer = found(files, libs=libs(nvml=None))
    assert all("cuda" not in device.indices for device in answer.devices)
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in answer.unknown["/1/indices/cuda"]
    ordered = found(files, libs=libs(nvml=None), env={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert [device.indices["cuda"] for device in ordered.devices] == [0, 1]


def test_a_driver_that_lists_a_device_is_believed_more_than_the_mode_of_its_node() -> None:
    files = ONE | {"/dev/nvidiactl": "!chr 195:255 0660 0:7", "/proc/self/status": "Uid:\t9\t9\t9\t9\nGroups:\t9\n"}
    assert not the_gpu(files, libs=libs(cuda={"cuInit": 100})).usable
    assert the_gpu(files, libs=libs(cuda=CUDA | {"cuDeviceGetPCIBusId": "0000:01:00.0"})).usable


def test_a_compute_mode_that_prohibits_is_unusable_and_one_that_excludes_is_told() -> None:
    prohibited = the_gpu(libs=libs(nvml=NVML | {"nvmlDeviceGetComputeMode": 2}))
    assert (prohibited.usable, "nvidia-smi -c DEFAULT" in prohibited.verdict.reason) == (False, True)
    exclusive = the_gpu(libs=libs(nvml=NVML | {"nvmlDeviceGetComputeMode": 3}))
    assert (exclusive.usable, exclusive.details["compute_mode"]) == (True, "exclusive_process")


@pytest.mark.parametrize(
    ("files", "fix"),
    [
        (ONE, "sudo apt install libnvidia-compute-570"),
        (ONE | {"/.dockerenv": ""}, "NVIDIA_DRIVER_CAPABILITIES=compute,utility"),
        ({"/dev/dxg": "!chr 10:125 0666 0:0", "/usr/lib64/libcuda.so.1": "!size 9"}, "wsl --update"),
        ({"/proc/device-tree/compatible": "nvidia,tegra234\0", "/dev/nvmap": "!chr 10:1 0666 0:0"}, "nvidia-l4t-cuda"),
    ],
)
def test_a_missing_cuda_driver_is_installed_as_the_place_asks_for(files: dict[str, str], fix: str) -> None:
    device = the_gpu(files, libs=libs(cuda=None))
    assert (device.usable, fix in device.verdict.reason) == (False, True)


def test_processes_and_reasons_of_the_clocks_are_told_for_health() -> None:
    running = [{"pid": 7, "usedGpuMemory": 5 << 30}, {"pid": 9, "usedGpuMemory": 2**64 - 1}]
    nvml = NVML | {"nvmlDeviceGetComputeRunningProcesses": running, "nvmlDeviceGetCurrentClocksThrottleReasons": "0x24"}
    device = the_gpu(libs=libs(nvml=nvml))
    assert device.details["processes"] == [
        {"pid": 7, "bytes": 5 << 30, "kind": "compute"},
        {"pid": 9, "bytes": None, "kind": "compute"},
    ]
    assert (device.details["event_reasons"], device.details["throttled"]) == (
        ["power_cap", "software_thermal"],
        ["software_thermal"],
    )
    health = lib.health(host_of(files=ONE, libs=libs(nvml=nvml)))["devices"]["0000:01:00.0"]
    assert (health["free_bytes"], health["throttled"]) == (20 << 30, ["software_thermal"])


@pytest.mark.parametrize(
    ("host", "id_"),
    [("nvidia-laptop-wsl", "dxg:0"), ("nvidia-gb10", "000f:01:00.0"), ("nvidia-nodes-only", "nvidia:3")],
)
def test_health_calls_a_device_as_the_inventory_does(host: str, id_: str) -> None:
    scene = {"facts": HOSTS[host]["facts"]}
    assert list(lib.health(ReplayHost(codec.from_json(Scene, scene)))["devices"]) == [id_]


def test_memory_that_is_the_machines_is_told_without_swap_and_never_as_the_drivers() -> None:
    host = HOSTS["nvidia-gb10"]
    (device,) = probe(ReplayHost(codec.from_json(Scene, {"facts": host["facts"]}))).devices
    assert device.memory.kind == "unified"
    assert device.memory.reported_bytes == 125500000 << 10
    assert device.memory.usable_bytes == 110000000 << 10
    assert device.memory.used_bytes == 6 << 30
    assert device.sources["/memory/reported_bytes"] == "/proc/meminfo"
    assert device.links == ()


def test_a_memory_size_that_a_driver_claims_for_a_shared_memory_is_not_taken() -> None:
    files = (
        cards("000f:01:00.0", device="0x2e12") | NODES | {"/proc/meminfo": "MemTotal: 100 kB\nMemAvailable: 60 kB\n"}
    )
    device = the_gpu(files)
    assert (device.memory.reported_bytes, device.memory.usable_bytes) == (100 << 10, 60 << 10)


def test_a_shared_memory_of_unknown_size_says_why() -> None:
    answer = found(cards("000f:01:00.0", device="0x2e12") | NODES)
    assert answer.devices[0].memory.reported_bytes is None
    assert answer.unknown["/0/memory/reported_bytes"] == "the machine does not tell it"


def test_a_gpu_that_cuda_calls_integrated_shares_the_memory() -> None:
    files = ONE | {"/proc/meminfo": "MemTotal: 100 kB\nMemAvailable: 60 kB\n"}
    assert the_gpu(files, libs=libs(cuda=CUDA | {"integrated": 1})).memory.kind == "unified"
    assert the_gpu(files, libs=libs(cuda=CUDA | {"integrated": 0})).memory.kind == "dedicated"


def test_a_jetson_tells_its_clock_load_and_temperature_without_nvml() -> None:
    (device,) = probe(ReplayHost(codec.from_json(Scene, {"facts": HOSTS["nvidia-jetson-orin"]["facts"]}))).devices
    assert (device.details["sm_clock_mhz"], device.details["sm_clock_max_mhz"]) == (306, 1300)
    assert (device.details["utilization"], device.details["temperature_c"]) == (12, 48)
    assert device.memory.reported_bytes == 64300000 << 10
    assert device.driver == "nvgpu, L4T R36 (release), REVISION: 4.3"


def test_nvidia_smi_of_a_jetson_does_not_rename_its_module() -> None:
    facts = json.loads(json.dumps(HOSTS["nvidia-jetson-orin"]["facts"]))
    query = "nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader"
    facts["commands"] = {query: "Orin (nvgpu), 540.4.0, 8.7\n"}
    (device,) = probe(ReplayHost(codec.from_json(Scene, {"facts": facts}))).devices
    assert (device.name, device.arch) == ("NVIDIA Jetson AGX Orin Developer Kit", "sm_87")


def test_windows_itself_lists_what_nvml_does() -> None:
    nvml = NVML | {"nvmlDeviceGetCount": 1, "nvmlDeviceGetPciInfo": {"bus": 1, "pciDeviceId": 0x28E010DE}}
    loaded = {"nvcuda.dll": {"calls": CUDA}, "nvml.dll": {"calls": nvml}}
    device = the_gpu({}, libs=loaded, platform={"system": "windows"})
    assert (device.id, device.usable, device.details["pci_id"]) == ("0000:01:00.0", True, "10de:28e0")
    assert device.memory.kind == "dedicated"


def test_nvlinks_are_counted_by_peer() -> None:
    nvml = NVML | {"nvmlDeviceGetNvLinkState": 1, "nvmlDeviceGetNvLinkRemotePciInfo": {"bus": 0x41}}
    assert the_gpu(libs=libs(nvml=nvml)).links == ({"kind": "nvlink", "peer": "0000:41:00.0", "links": 36},)


@pytest.mark.parametrize("count", [None, 1])
def test_a_mig_instance_that_a_variable_names_by_a_uuid_that_nothing_tells_is_not_called_hidden(
    count: int | None,
) -> None:
    facts = HOSTS["nvidia-mig"]["facts"]
    if count:
        facts = facts | {"libs": libs(CUDA | {"cuDeviceGetCount": count, "cuDeviceGetPCIBusId": "0000:4b:00.0"}, None)}
    mask = {"CUDA_VISIBLE_DEVICES": "MIG-11111111-2222-3333-4444-555555555555"}
    answer = probe(host_of(**facts | {"env": mask}))
    instances = [device for device in answer.devices if "parent" in device.details]
    assert [device.verdict.code for device in instances] == ["unknown", "unknown"]
    assert all(device.visible and not device.usable for device in instances)
    assert "nothing here tells which" in answer.unknown["/1/indices/cuda"]


def test_nvidia_smi_lists_the_uuids_of_mig_instances_that_its_report_lacks() -> None:
    facts = HOSTS["nvidia-mig"]["facts"]
    uuids = [f"MIG-11111111-2222-3333-4444-{digit * 12}" for digit in "56"]
    lines = [f"  MIG 3g.40gb     Device  {n}: (UUID: {uuid})" for n, uuid in enumerate(uuids)]
    listing = "\n".join(["GPU 0: NVIDIA H100 PCIe (UUID: GPU-00000000-0000-0000-0000-0000000000b1)", *lines])
    commands = facts["commands"] | {"nvidia-smi -L": listing}
    answer = probe(host_of(**facts | {"env": {"CUDA_VISIBLE_DEVICES": uuids[1]}, "commands": commands}))
    instances = [device for device in answer.devices if "parent" in device.details]
    assert [device.details["uuid"] for device in instances] == uuids
    assert [device.verdict.code for device in instances] == ["hidden", "usable"]


def test_a_mig_instance_has_the_pcie_link_of_its_gpu_and_no_nvlink() -> None:
    nvlinks = {"nvmlDeviceGetNvLinkState": 1, "nvmlDeviceGetNvLinkRemotePciInfo": {"bus": 0x41}}
    instance = {
        "nvmlDeviceGetMigMode": 1,
        "nvmlDeviceGetMaxMigDeviceCount": 1,
        "nvmlDeviceGetMigDeviceHandleByIndex": 0,
        "nvmlDeviceGetGpuInstanceId": 3,
        "nvmlDeviceGetComputeInstanceId": 0,
    }
    files = ONE | {f"{BUS}/0000:01:00.0/max_link_width": "16"}
    whole, part = found(files, libs=libs(nvml=NVML | nvlinks | instance)).devices
    assert [link["kind"] for link in whole.links] == ["pcie", "nvlink"]
    assert [link["kind"] for link in part.links] == ["pcie"]


def test_the_bandwidth_of_the_memory_is_that_of_its_clock_and_width() -> None:
    nvml = NVML | {"nvmlDeviceGetMemoryBusWidth": 128, "nvmlDeviceGetMaxClockInfo": 8001}
    assert the_gpu(libs=libs(nvml=nvml)).details["memory_bandwidth_gb_s"] == 256.0


@pytest.mark.parametrize(
    ("rows", "word"), [([0, 1, 1, 0], "are to be replaced"), ([0, 1, 0, 1], "no spare is left"), ([9, 0, 0, 0], None)]
)
def test_broken_rows_of_memory_limit_a_gpu_and_corrected_ones_do_not(rows: list[int], word: str | None) -> None:
    device = the_gpu(libs=libs(nvml=NVML | {"nvmlDeviceGetRemappedRows": rows}))
    assert (device.usable, device.verdict.code) == (True, "limited" if word else "usable")
    assert word is None or word in device.verdict.reason


def test_a_count_that_is_no_count_and_a_recording_of_nonsense_end() -> None:
    device = the_gpu(
        libs=libs(cuda=CUDA | {"cuDeviceGetCount": 2**31 - 1}, nvml={"nvmlInit": 0, "nvmlDeviceGetCount": 2**32 - 1})
    )
    assert device.id == "0000:01:00.0"
