"""Real outputs that no parser of ours reads, made into the files that layer 0 and sysfs are read from."""

import json
import re

import pytest

from tests.unit.detect.scenes import ROOT, host_of
from vllm_probe.vendors.amd.kfd import Bank, Node
from vllm_probe.vendors.intel import PLUGIN as INTEL
from vllm_probe.vendors.intel import sysfs
from vllm_probe.vendors.layer0 import asleep, bus_devices
from vllm_probe.vendors.nvidia import PLUGIN as NVIDIA
from vllm_probe.vendors.pci import accelerators

CAPTURES = ROOT.parent / "shared" / "data" / "captures"
BUS = "/sys/bus/pci/devices"
pytestmark = pytest.mark.skipif(not CAPTURES.exists(), reason="the captures are not beside this checkout")


def capture(name: str) -> str:
    return (CAPTURES / name).read_text(encoding="utf-8")


def bus_of(text: str) -> dict[str, str]:
    """The files of the functions that `lspci -nn` or `-nnk` lists."""
    files: dict[str, str] = {}
    folder = ""
    for line in text.splitlines():
        function = re.match(
            r"(?:([0-9a-f]{4}):)?([0-9a-f:.]{7}) .*\[([0-9a-f]{4})\]: .*\[([0-9a-f]{4}):([0-9a-f]{4})\]", line
        )
        if function:
            domain, place, class_, vendor, device = function.groups()
            folder = f"{BUS}/{domain or '0000'}:{place}"
            files |= {f"{folder}/class": f"0x{class_}00", f"{folder}/vendor": f"0x{vendor}"}
            files |= {f"{folder}/device": f"0x{device}"}
        driver = re.search(r"Kernel driver in use: (\S+)", line)
        if driver:
            files[f"{folder}/driver"] = f"!link ../../../bus/pci/drivers/{driver[1]}"
    return files


def files_of(text: str) -> dict[str, str]:
    """Files in one text, each behind a line `### path`, of which what stands in brackets is a remark."""
    parts = re.split(r"^### (\S+).*\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_a_cloud_machine_has_eight_gpus_and_its_switches_and_network_cards_are_none() -> None:
    gpus = accelerators(host_of(files=bus_of(capture("nvidia/lspci-nn-a100.txt"))))
    assert [gpu.address for gpu in gpus] == [f"{domain:04x}:00:00.0" for domain in (1, 2, 3, 4, 11, 12, 13, 14)]
    assert {gpu.pci_id for gpu in gpus} == {"10de:20b2"}


def test_the_audio_functions_of_two_gpus_are_no_devices() -> None:
    host = host_of(files=bus_of(capture("nvidia/lspci-nnk-rtx3090.txt")))
    found = [device for device, _ in bus_devices(host, NVIDIA)]
    assert [(device.id, device.driver) for device in found] == [("0000:01:00.0", "nvidia"), ("0000:41:00.0", "nvidia")]
    assert {device.name for device in found} == {"NVIDIA GeForce RTX 3090"}


def test_a_gpu_whose_memory_is_off_is_asleep() -> None:
    files = files_of(capture("nvidia/proc-driver-nvidia-gpu-power-d3cold.txt"))
    folder = f"{BUS}/0000:11:00.0"
    files |= {f"{folder}/class": "0x030000", f"{folder}/vendor": "0x10de", f"{folder}/device": "0x2204"}
    files |= {f"{folder}/driver": "!link ../../../bus/pci/drivers/nvidia"}
    assert asleep(host_of(files=files), NVIDIA) == {"0000:11:00.0"}


def test_the_memory_of_a_gb10_is_that_of_the_machine() -> None:
    stats = host_of(files=files_of(capture("nvidia/gb10-meminfo-dmi.txt"))).stats()
    assert (stats.memory_total_bytes, stats.memory_available_bytes) == (128520671232, 121737812 * 1024)


def test_an_arc_b580_is_named_by_its_id() -> None:
    text = capture("intel/lspci-k-b580-xe.txt")
    number = re.search(r"Device ([0-9a-f]{4})\n", text)
    assert number is not None
    listed = f"03:00.0 VGA [0300]: Intel [8086:{number[1]}]\n{text.partition(chr(10))[2]}"
    ((device, _),) = bus_devices(host_of(files=bus_of(listed)), INTEL)
    assert (device.name, device.arch, device.driver) == ("Intel Arc B580", "bmg", "xe")


def test_a_power_limit_of_0_is_switched_off_and_the_critical_one_holds() -> None:
    text = capture("intel/sensors-xe-b580.txt")
    chip = f"{BUS}/0000:03:00.0/hwmon/hwmon1"
    files = {f"{chip}/name": "xe\n"}
    for channel, name in ((1, "card"), (2, "pkg")):
        line = re.search(rf"^{name}:.*max.*$", text, re.MULTILINE)
        for key, watts in re.findall(r"(max|crit) = +([0-9.]+) W", line[0] if line else ""):
            files[f"{chip}/power{channel}_{key}"] = str(int(float(watts) * 1e6))
    assert files[f"{chip}/power2_max"] == "0"
    assert sysfs.read(host_of(files=files), "0000:03:00.0")["power_limit_w"] == 320.0


def test_the_bandwidth_of_an_rx_9060_xt_is_what_amdgpu_top_shows() -> None:
    (card,) = json.loads(capture("amd/amdgpu_top-dump-rx9060xt.json"))
    width, clock = card["VRAM Bit width"], card["Memory Clock"]["max"]
    bank = Bank(size_bytes=card["VRAM Size"], width_bits=width, clock_mhz=clock)
    node = Node(number=1, properties={"gfx_target_version": 120000}, banks=(bank,))
    assert node.arch == card["ASIC Name"].lower()
    assert node.bandwidth_gb_s == pytest.approx(card["Peak Memory Bandwidth"]["value"], rel=0.01)
