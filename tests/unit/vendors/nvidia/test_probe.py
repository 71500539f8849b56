"""Values of NVIDIA GPUs on recorded machines, and the library or tool that tells each."""

from typing import Any

import pytest

from tests.unit.detect.scenes import host_of
from tests.unit.vendors.nvidia.cards import CUDA, FIXTURES, NODES, NVML, ONE, cards, found, libs, the_gpu
from vllm_probe.core import codec
from vllm_probe.core.errors import LibraryUnavailable
from vllm_probe.core.scene import Scene
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.nvidia import lib, smi
from vllm_probe.vendors.nvidia.facts import evidence
from vllm_probe.vendors.nvidia.probe import probe


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


@pytest.mark.parametrize("calls", [{"nvmlDeviceGetName": "timeout"}, {"nvmlDeviceGetHandleByIndex": 15}])
def test_why_there_is_no_memory_is_told_of_a_card_that_does_not_answer(calls: dict[str, Any]) -> None:
    answer = found(ONE, libs=libs(nvml=NVML | calls))
    assert answer.devices[0].memory.reported_bytes is None
    assert answer.unknown["/0/memory/reported_bytes"] in {
        "NVML: nvmlDeviceGetName does not return",
        "NVML: the GPU is lost: it has fallen off the bus",
    }


def test_nvidia_smi_is_asked_for_a_card_over_which_nvml_hangs() -> None:
    answer = found(
        cards("0000:3b:00.0", device="0x1bb3") | NODES,
        libs=libs(nvml=NVML | {"nvmlDeviceGetName": "timeout", "nvmlDeviceGetPciInfo": {"bus": 0x3B}}),
        commands={"nvidia-smi -q -x": FIXTURES["v10"]},
    )
    (device,) = answer.devices
    assert (device.name, device.memory.reported_bytes) == ("Tesla P4", 7611 << 20)
    assert "/0/memory/reported_bytes" not in answer.unknown


TABLE = """| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|   0  NVIDIA GeForce RTX 3090        Off |   00000000:01:00.0 Off |                  Off |
|  0%   43C    P8             17W /  450W |   20000MiB /  24564MiB |      3%      Default |
"""


def test_what_is_free_is_what_the_table_of_nvidia_smi_leaves() -> None:
    answer = found(ONE, libs=libs(nvml=None), commands={"nvidia-smi": TABLE})
    memory = answer.devices[0].memory
    assert (memory.reported_bytes, memory.used_bytes, memory.usable_bytes) == (24564 << 20, 20000 << 20, 4564 << 20)
    assert "/0/memory/usable_bytes" not in answer.unknown
    assert answer.devices[0].sources["/memory/usable_bytes"] == "nvidia-smi"


def test_what_the_driver_keeps_is_not_free() -> None:
    sizes = {"total": 24 << 30, "reserved": 1 << 30, "used": 3 << 30}
    assert evidence("0000:01:00.0", "NVML", {"memory": sizes}).facts["/memory/usable_bytes"] == 20 << 30


def test_the_version_of_the_driver_is_that_of_the_cards_that_it_has() -> None:
    files = cards("0000:01:00.0", driver="vfio-pci") | cards("0000:02:00.0", driver="nouveau") | NODES
    free = {path: text for path, text in cards("0000:04:00.0").items() if not path.endswith("driver")}
    answer = found(files | free | cards("0000:03:00.0"), libs=libs(nvml=NVML | {"nvmlDeviceGetPciInfo": {"bus": 3}}))
    assert [device.driver for device in answer.devices] == ["vfio-pci", "nouveau", "nvidia 570.12", None]


def test_a_container_that_does_not_show_the_driver_of_a_card_has_it_from_nvml() -> None:
    unbound = {path: text for path, text in cards("0000:01:00.0").items() if not path.endswith("driver")} | NODES
    nvml = NVML | {"nvmlDeviceGetPciInfo": {"bus": 1}}
    (bound, _) = found(unbound | cards("0000:41:00.0"), libs=libs(nvml=nvml)).devices
    assert bound.driver == "nvidia 570.12"


def test_the_cuda_driver_tells_the_size_where_nothing_else_does() -> None:
    cuda = CUDA | {"cuDeviceTotalMem": 25386352640}
    alone = found(ONE, libs=libs(cuda=cuda, nvml=None))
    assert alone.devices[0].memory.reported_bytes == 25386352640
    assert alone.devices[0].sources["/memory/reported_bytes"] == "libcuda"
    assert alone.devices[0].memory.usable_bytes is None
    both = the_gpu(libs=libs(cuda=cuda))
    assert (both.memory.reported_bytes, "conflicts" in both.details) == (24 << 30, False)


def test_a_pci_id_that_nvml_does_not_tell_leaves_that_of_the_bus() -> None:
    for number in ({}, {"pciDeviceId": 0x10DE}):
        device = the_gpu(libs=libs(nvml=NVML | {"nvmlDeviceGetPciInfo": {"bus": 1} | number}))
        assert (device.memory.reported_bytes, device.details["pci_id"]) == (24 << 30, "10de:2204")


def test_a_memory_of_no_bytes_is_unknown() -> None:
    none = {"nvmlDeviceGetMemoryInfo": {"total": 0, "free": 0, "used": 0}}
    answer = found(ONE, libs=libs(nvml=NVML | none))
    memory = answer.devices[0].memory
    assert (memory.reported_bytes, memory.usable_bytes, memory.used_bytes) == (None, None, None)
    assert answer.unknown["/0/memory/used_bytes"] == "NVML: the memory is said to have 0 bytes"


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


def test_sources_that_disagree_are_both_shown() -> None:
    files = ONE | {"/proc/driver/nvidia/version": "Kernel Module  570.12  Release"}
    device = the_gpu(
        files,
        libs=libs(cuda=CUDA | {"compute_capability": 89}, nvml=NVML | {"nvmlDeviceGetCudaComputeCapability": [8, 6]}),
    )
    assert device.arch == "sm_86"
    assert device.details["conflicts"] == {"/arch": [{"value": "sm_89", "source": "libcuda"}]}


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


def test_nvidia_smi_tells_the_health_where_there_is_no_nvml() -> None:
    host = host_of(files=cards("0000:06:00.0", "0000:0b:00.0") | NODES, commands={"nvidia-smi -q -x": FIXTURES["v10"]})
    found = lib.health(host)["devices"]
    tool = smi.read(host)["devices"]
    assert list(found) == [record["id"] for record in tool]
    assert found[tool[0]["id"]]["free_bytes"] == tool[0]["memory"]["free"]
    table = "|   0  Tesla T4            Off  | 00000000:06:00.0 Off |   0 |\n| N/A   |    400MiB / 15000MiB |   0% |\n"
    found = lib.health(host_of(files=cards("0000:06:00.0"), commands={"nvidia-smi": table}))["devices"]
    assert found["0000:06:00.0"] == {"free_bytes": 14600 << 20, "used_bytes": 400 << 20}
    lost = {"nvidia-smi -q -x": "!rc=18\nFailed to initialize NVML: Driver/library version mismatch\n"}
    assert "different versions" in lib.health(host_of(files=ONE, commands=lost))["lost"]
    with pytest.raises(LibraryUnavailable, match=r"libnvidia-ml\.so\.1"):
        lib.health(host_of(files=ONE))


def test_the_instances_of_a_card_that_is_split_have_their_health_from_nvidia_smi() -> None:
    host = host_of(files=ONE, commands={"nvidia-smi -q -x": FIXTURES["v12-mig"]})
    (card,) = smi.read(host)["devices"]
    free = [state.get("free_bytes") for id_, state in lib.health(host)["devices"].items() if "/mig-" in id_]
    assert free == [part.get("memory", {}).get("free") for part in card["parts"]]
    assert any(free)


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


def test_nvlinks_are_counted_by_peer() -> None:
    nvml = NVML | {"nvmlDeviceGetNvLinkState": 1, "nvmlDeviceGetNvLinkRemotePciInfo": {"bus": 0x41}}
    assert the_gpu(libs=libs(nvml=nvml)).links == ({"kind": "nvlink", "peer": "0000:41:00.0", "links": 36},)


def test_the_bandwidth_of_the_memory_is_that_of_its_clock_and_width() -> None:
    nvml = NVML | {"nvmlDeviceGetMemoryBusWidth": 128, "nvmlDeviceGetMaxClockInfo": 8001}
    assert the_gpu(libs=libs(nvml=nvml)).details["memory_bandwidth_gb_s"] == 256.0


@pytest.mark.parametrize(
    ("number", "name", "arch"),
    [
        ("0x102d", "NVIDIA Tesla K80", "sm_37"),
        ("0x1023", "NVIDIA Tesla K40m", "sm_35"),
        ("0x1024", "NVIDIA Tesla K40c", "sm_35"),
        ("0x1028", "NVIDIA Tesla K20m", "sm_35"),
        ("0x1004", "NVIDIA GeForce GTX 780", "sm_35"),
        ("0x128b", "NVIDIA GeForce GT 710", "sm_35"),
        ("0x118f", "NVIDIA Tesla K10", "sm_30"),
    ],
)
def test_a_card_of_the_kepler_generation_is_named_by_its_id(number: str, name: str, arch: str) -> None:
    device = the_gpu(cards("0000:01:00.0", device=number) | NODES, libs={})
    assert (device.name, device.arch) == (name, arch)
