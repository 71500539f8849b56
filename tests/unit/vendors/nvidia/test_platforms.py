"""NVIDIA GPUs of Jetsons, of Windows and of machines that share their memory with the processor."""

import json

import pytest

from tests.unit.detect.scenes import HOSTS, host_of
from tests.unit.vendors.nvidia.cards import CUDA, FIXTURES, NODES, NVML, ONE, cards, found, libs, the_gpu
from vllm_probe.core import codec
from vllm_probe.core.scene import Scene
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.nvidia import PLUGIN, lib
from vllm_probe.vendors.nvidia.probe import probe
from vllm_probe.vendors.registry import PortableDeviceManager


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


@pytest.mark.parametrize("machine", ["AMD64", "ARM64"])
def test_windows_is_a_sign_of_nvidia_by_the_name_that_it_gives_its_processor(machine: str) -> None:
    text = FIXTURES["v10"]
    host = host_of(platform={"system": "windows", "machine": machine}, commands={"nvidia-smi -q -x": text})
    found = PortableDeviceManager(host, (PLUGIN,)).probe_devices()
    assert found.devices[0].name == "Tesla P4"
