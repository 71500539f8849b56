"""The memory of each kind of GPU: its own, a partition's share, and what one may take of the machine's."""

import pytest

from tests.unit.vendors.amd.hosts import (
    BUS,
    CARD,
    KFD,
    NODES,
    RUNTIME,
    capture_files,
    devices,
    needs_captures,
    probed,
    recorded,
    the_card,
    without,
)
from vllm_probe.core import codec
from vllm_probe.core.device import DeviceMemory
from vllm_probe.core.scene import Scene
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.amd import PLUGIN
from vllm_probe.vendors.health import DriverHealthMonitor
from vllm_probe.vendors.registry import PortableDeviceManager

BANK = f"{NODES}/1/mem_banks/0/properties"
APU = KFD | {
    f"{NODES}/1/properties": KFD[f"{NODES}/1/properties"].replace("110000", "110501"),
    BANK: "heap_type 1\nsize_in_bytes 64000000000\n",
}
HALO = CARD | {
    f"{BUS}/device": "0x1586",
    f"{BUS}/mem_info_vram_total": "536870912",
    f"{BUS}/mem_info_vram_used": "180000000",
    f"{BUS}/mem_info_gtt_total": "64000000000",
    f"{BUS}/mem_info_gtt_used": "2000000000",
}


def test_a_card_has_the_memory_of_the_driver_and_usable_is_what_is_free() -> None:
    device = the_card(CARD | KFD)
    assert device.memory == DeviceMemory(
        reported_bytes=25753026560, used_bytes=27000000, usable_bytes=25726026560, kind="dedicated"
    )
    assert device.sources["/memory/reported_bytes"].startswith("sysfs")
    assert device.details["memory_bandwidth_gb_s"] == 959.2
    assert device.sources["/details/memory_bandwidth_gb_s"].startswith("derived")


def test_without_the_drivers_files_kfd_tells_it() -> None:
    device = the_card(without(CARD, "mem_info") | KFD)
    assert device.memory.reported_bytes == 25753026560
    assert device.sources["/memory/reported_bytes"] == "KFD node 1"
    assert device.memory.used_bytes is None


def test_driver_and_kfd_that_disagree_are_both_shown() -> None:
    device = the_card(CARD | KFD | {BANK: "heap_type 1\nsize_in_bytes 8000000000\n"})
    assert device.memory.reported_bytes == 25753026560
    (other,) = device.details["conflicts"]["/memory/reported_bytes"]
    assert other == {"value": 8000000000, "source": "KFD node 1"}


def test_a_processors_gpu_has_what_kfd_gives_and_pools_are_not_added_up() -> None:
    device = the_card(HALO | APU)
    assert device.kind == "igpu"
    assert device.memory == DeviceMemory(
        reported_bytes=64000000000, used_bytes=2000000000, usable_bytes=50000000 * 1024, kind="unified"
    )


def test_what_it_may_take_is_no_more_than_its_pool_has_left() -> None:
    full = HALO | APU | {f"{BUS}/mem_info_gtt_used": "63000000000"}
    assert the_card(full).memory.usable_bytes == 1000000000


def test_a_carve_out_is_no_part_of_the_machines_memory() -> None:
    small = HALO | APU | {BANK: "heap_type 1\nsize_in_bytes 536870912\n", "/proc/meminfo": "MemAvailable: 1 kB\n"}
    assert the_card(small).memory == DeviceMemory(
        reported_bytes=536870912, used_bytes=180000000, usable_bytes=356870912, kind="unified"
    )


def test_where_kfd_gives_another_size_than_both_pools_used_is_unknown() -> None:
    odd = HALO | APU | {BANK: "heap_type 1\nsize_in_bytes 20000000000\n"}
    found = probed(odd, libs=RUNTIME)
    assert found.devices[0].memory.used_bytes is None
    assert found.devices[0].memory.usable_bytes == 20000000000
    assert found.unknown["/0/memory/used_bytes"] == "sysfs shows no pool of the size that KFD gives"


def test_where_kfd_tells_no_size_the_larger_pool_counts() -> None:
    device = the_card(HALO | without(APU, "mem_banks"))
    assert device.memory.reported_bytes == 64000000000


def test_a_gpu_whose_architecture_only_processors_have_is_integrated_whatever_its_id() -> None:
    device = the_card(HALO | APU | {f"{BUS}/device": "0xfff0"})
    assert (device.kind, device.memory.kind, device.name) == ("igpu", "unified", None)


def test_no_source_at_all_leaves_every_size_unknown_with_a_reason() -> None:
    found = probed(without(CARD, "mem_info") | without(KFD, "mem_banks"), libs=RUNTIME)
    assert found.devices[0].memory == DeviceMemory(kind="dedicated")
    for size in ("reported", "usable", "used"):
        assert found.unknown[f"/0/memory/{size}_bytes"] == "the driver shows no mem_info_vram_total"


def test_partitions_have_their_share_and_no_bandwidth_of_their_own() -> None:
    found = devices(**recorded("amd-cpx"))
    parts = [device for id_, device in found.items() if "/xcp-" in id_]
    assert len(parts) == 8
    for part in parts:
        assert part.memory == DeviceMemory(
            reported_bytes=25769803776, used_bytes=285000000, usable_bytes=25484803776, kind="partition"
        )
        assert "memory_bandwidth_gb_s" not in part.details
    assert found["0000:27:00.0"].memory.kind == "dedicated"
    assert found["0000:27:00.0"].details["memory_bandwidth_gb_s"] == 5324.8


def test_a_partition_that_kfd_tells_no_size_of_does_not_show_the_cards() -> None:
    facts = recorded("amd-cpx")
    found = probed(without(facts["files"], "mem_banks"), libs=facts["libs"])
    part = next(number for number, device in enumerate(found.devices) if device.id.endswith("/xcp-3"))
    assert found.devices[part].memory == DeviceMemory(kind="partition")
    assert found.unknown[f"/{part}/memory/reported_bytes"] == "KFD does not tell it, and sysfs shows the whole card"


def test_the_memory_of_an_mi300a_is_the_machines() -> None:
    device = devices(**recorded("amd-mi300x"))["0000:26:00.0"]
    assert (device.kind, device.memory.kind) == ("gpu", "unified")
    assert device.memory.usable_bytes == 52428800 * 1024


def test_the_parts_of_an_mi300a_have_no_memory_that_the_machine_does_not_have() -> None:
    facts = recorded("amd-cpx")
    folder = "/sys/bus/pci/devices/0000:05:00.0"
    files = facts["files"] | {f"{folder}/device": "0x74a0", "/proc/meminfo": "MemAvailable: 20000000 kB\n"}
    found = devices(**facts | {"files": files})
    part = DeviceMemory(reported_bytes=25769803776, used_bytes=285000000, usable_bytes=20000000 * 1024, kind="unified")
    assert [device.memory for id_, device in found.items() if "/xcp-" in id_] == [part] * 8
    assert (found["0000:05:00.0"].memory.kind, found["0000:05:00.0"].memory.usable_bytes) == ("unified", None)
    host = ReplayHost(codec.from_json(Scene, {"facts": facts | {"files": files}}))
    monitor = DriverHealthMonitor(PortableDeviceManager(host, (PLUGIN,)))
    assert monitor.snapshot(found["0000:05:00.0/xcp-3"], 24 << 30).reasons == ("24.00 GiB needed, 19.07 GiB free",)


@needs_captures
@pytest.mark.parametrize(
    ("name", "address", "part", "size"),
    [
        ("kfd-mi300x-cpx-nodes.txt", "0000:05:00.0", "0000:05:00.0/xcp-1", None),
        ("kfd-mi308x-nps-nodes.txt", "0000:0a:00.0", "0000:0a:00.0/xcp-1", 51539607552),
    ],
)
def test_captured_partitions_become_devices(name: str, address: str, part: str, size: int | None) -> None:
    moved = {path.replace(BUS, BUS.replace("0000:03:00.0", address)): text for path, text in CARD.items()}
    nodes = capture_files(name, NODES.removesuffix("nodes"))
    found = devices(moved | nodes | {f"/dev/dri/renderD{129}": "!chr 226:129 0666 0:0"}, libs=RUNTIME)
    assert found[part].arch == "gfx942"
    assert found[part].memory.reported_bytes == size
    assert found[part].memory.kind == "partition"
    assert found[part].indices["drm_render"] == 129
    assert not found[address].usable
