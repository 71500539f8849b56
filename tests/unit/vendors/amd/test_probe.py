"""What the sources of an AMD GPU come to: layers apart from each other, tools where sysfs lacks, names."""

import json

import pytest

from tests.unit.vendors.amd.hosts import (
    BUS,
    CARD,
    KFD,
    NODES,
    RUNTIME,
    XTX,
    capture,
    devices,
    needs_captures,
    probed,
    recorded,
    the_card,
    without,
)

NAMES = {
    "amdsmi_init": 0,
    "amdsmi_get_socket_handles": 1,
    "amdsmi_get_processor_handles": 1,
    "amdsmi_get_gpu_device_bdf": 0x300,
    "amdsmi_get_gpu_asic_info": "AMD Radeon RX 7900 GRE",
}
STATIC = json.dumps(
    [{"gpu": 0, "bus": {"bdf": "0000:03:00.0"}, "vram": {"size": {"value": 24560, "unit": "MB"}}, "asic": "N/A"}]
)
METRIC = json.dumps([{"gpu": 0, "mem_usage": {"used_vram": {"value": 60, "unit": "MB"}}}])
ROCM_SMI = (
    "rocm-smi --showid --showproductname --showbus --showdriverversion --showmeminfo all --showuse --showtemp "
    "--showpower --json"
)
NO_SIZES = without(CARD, "mem_info") | without(KFD, "mem_banks")


def test_the_name_of_a_card_that_shares_its_id_comes_from_the_library() -> None:
    device = the_card(CARD | KFD, libs=RUNTIME | {"libamd_smi.so": {"calls": NAMES}})
    assert (device.name, device.sources["/name"]) == ("AMD Radeon RX 7900 GRE", "libamd_smi")


@pytest.mark.parametrize(
    "calls",
    [
        NAMES | {"amdsmi_init": 34},
        NAMES | {"amdsmi_init": "timeout"},
        NAMES | {"amdsmi_get_gpu_device_bdf": 0x8300},
        NAMES | {"amdsmi_get_gpu_asic_info": "AMD Radeon Graphics"},
        NAMES | {"amdsmi_get_gpu_asic_info": ""},
        {name: value for name, value in NAMES.items() if name != "amdsmi_get_gpu_asic_info"},
        {name: value for name, value in NAMES.items() if name != "amdsmi_get_socket_handles"},
        NAMES | {"amdsmi_get_socket_handles": 0},
        NAMES | {"amdsmi_get_processor_handles": 100000},
    ],
)
def test_a_library_that_fails_costs_its_name_only(calls: dict[str, object]) -> None:
    device = the_card(CARD | KFD, libs=RUNTIME | {"libamd_smi.so": {"calls": calls}})
    assert (device.name, device.usable, device.memory.reported_bytes) == (XTX, True, 25753026560)


def test_no_library_is_asked_for_a_name_that_the_id_tells() -> None:
    facts = recorded("amd-mi300x")
    facts["libs"]["libamd_smi.so"] = {"calls": NAMES | {"amdsmi_get_gpu_device_bdf": 0x500}}
    assert devices(**facts)["0000:05:00.0"].name == "AMD Instinct MI300X"


def test_amd_smi_tells_the_memory_where_sysfs_does_not() -> None:
    commands = {"amd-smi static --json": f"WARNING: x\n{STATIC}", "amd-smi metric --json": METRIC}
    device = the_card(NO_SIZES, commands=commands)
    assert device.memory.reported_bytes == 24560 << 20
    assert device.memory.usable_bytes == 24500 << 20
    assert device.sources["/memory/reported_bytes"] == "amd-smi"


def test_rocm_smi_is_asked_where_there_is_no_amd_smi() -> None:
    row = {"card0": {"PCI Bus": "0000:03:00.0", "VRAM Total Memory (B)": "25753026560"}}
    device = the_card(NO_SIZES, commands={ROCM_SMI: json.dumps(row)})
    assert device.memory.reported_bytes == 25753026560
    assert device.memory.used_bytes is None
    assert device.sources["/memory/reported_bytes"] == "rocm-smi"


def test_rocm_smi_is_asked_for_the_cards_that_amd_smi_leaves_out() -> None:
    second = {path.replace("0000:03:00.0", "0000:83:00.0"): text for path, text in NO_SIZES.items()}
    row = {"PCI Bus": "0000:83:00.0", "VRAM Total Memory (B)": "17095983104", "VRAM Total Used Memory (B)": "4096"}
    commands = {
        "amd-smi static --json": STATIC,
        "amd-smi metric --json": METRIC,
        ROCM_SMI: json.dumps({"card0": {"PCI Bus": "0000:03:00.0", "VRAM Total Memory (B)": "1"}, "card1": row}),
    }
    found = devices(NO_SIZES | second, libs=RUNTIME, commands=commands)
    first, other = found["0000:03:00.0"], found["0000:83:00.0"]
    assert (first.memory.reported_bytes, first.memory.usable_bytes) == (24560 << 20, 24500 << 20)
    assert "conflicts" not in first.details
    assert (other.memory.reported_bytes, other.memory.usable_bytes) == (17095983104, 17095979008)
    assert other.sources["/memory/reported_bytes"] == "rocm-smi"


def _nameless(*sizes: int, pci_id: str = "0x744c") -> dict[str, str]:
    rows = [{"gpu": n, "asic": {"device_id": pci_id}, "vram": {"size": size}} for n, size in enumerate(sizes)]
    return {"amd-smi static --json": json.dumps(rows)}


def test_what_a_tool_tells_without_addresses_is_of_the_card_with_its_pci_id() -> None:
    commands = _nameless(24560)
    assert the_card(NO_SIZES, commands=commands).memory.reported_bytes == 24560 << 20
    second = {path.replace("0000:03:00.0", "0000:83:00.0"): text for path, text in NO_SIZES.items()}
    other = second | {"/sys/bus/pci/devices/0000:83:00.0/device": "0x740f"}
    found = devices(NO_SIZES | other, libs=RUNTIME, commands=commands)
    assert found["0000:03:00.0"].memory.reported_bytes == 24560 << 20
    assert found["0000:83:00.0"].memory.reported_bytes is None


def test_what_a_tool_tells_without_addresses_of_equal_cards_is_in_order_of_the_bus() -> None:
    second = {path.replace("0000:03:00.0", "0000:83:00.0"): text for path, text in NO_SIZES.items()}
    found = devices(NO_SIZES | second, libs=RUNTIME, commands=_nameless(24560, 24544))
    assert found["0000:03:00.0"].memory.reported_bytes == 24560 << 20
    assert found["0000:83:00.0"].memory.reported_bytes == 24544 << 20
    found = devices(NO_SIZES | second, libs=RUNTIME, commands=_nameless(24560))
    assert {device.memory.reported_bytes for device in found.values()} == {None}


def test_what_a_tool_tells_of_another_chip_is_not_taken() -> None:
    assert the_card(NO_SIZES, commands=_nameless(65520, pci_id="0x740f")).memory.reported_bytes is None
    rows = [{"gpu": 0, "bus": {"bdf": "0000:83:00.0"}, "vram": {"size": 16}}, {"gpu": 1, "vram": {"size": 17}}]
    commands = {"amd-smi static --json": json.dumps(rows)}
    assert the_card(NO_SIZES, commands=commands).memory.reported_bytes is None


@needs_captures
def test_the_captured_answer_without_an_address_tells_the_memory_of_the_only_card() -> None:
    files = NO_SIZES | {f"{BUS}/device": "0x740f"}
    commands = {"amd-smi static --json": capture("amd-smi-static-mi210-gpu_data.json")}
    assert the_card(files, commands=commands).memory.reported_bytes == 68702699520


@pytest.mark.parametrize(
    "commands",
    [
        {"amd-smi static --json": "!timeout"},
        {"amd-smi static --json": "!rc=-11\n"},
        {"amd-smi static --json": "AmdSmiLibraryException: 34\n"},
        {"amd-smi static --json": '{"gpu_data": "N/A"}'},
        {ROCM_SMI: "ERROR:root:Driver not initialized (amdgpu not found in modules)\n"},
        {ROCM_SMI: "!timeout"},
    ],
)
def test_a_tool_that_fails_costs_its_own_values_only(commands: dict[str, str]) -> None:
    device = the_card(NO_SIZES, commands=commands)
    assert device.memory.reported_bytes is None
    assert (device.usable, device.arch, device.indices["kfd"]) == (True, "gfx1100", 1)


def test_no_tool_is_run_where_sysfs_tells_everything() -> None:
    commands = {"amd-smi static --json": STATIC.replace("24560", "1"), "amd-smi metric --json": METRIC}
    assert "conflicts" not in the_card(CARD | KFD, commands=commands).details


def test_one_broken_card_does_not_hide_the_other() -> None:
    broken = {path.replace("0000:03:00.0", "0000:83:00.0"): "\ufffd\n" for path in CARD if "mem_info" in path}
    second = {path.replace("0000:03:00.0", "0000:83:00.0"): text for path, text in CARD.items() if BUS in path}
    found = devices(CARD | second | broken | KFD, libs=RUNTIME)
    assert found["0000:03:00.0"].usable
    assert found["0000:83:00.0"].verdict.code == "unusable"


def test_kfd_knows_the_architecture_better_than_the_id() -> None:
    node = KFD[f"{NODES}/1/properties"].replace("110000", "110002")
    device = the_card(CARD | KFD | {f"{NODES}/1/properties": node})
    assert (device.arch, device.sources["/arch"]) == ("gfx1102", "KFD node 1")


def test_details_tell_units_wave_and_why_live_values_are_missing() -> None:
    found = probed(CARD | KFD | {f"{BUS}/power/runtime_status": "suspended\n"}, libs=RUNTIME)
    details = found.devices[0].details
    assert (details["compute_units"], details["wave_size"], details["bus_width_bits"]) == (96, 32, 384)
    assert details["utilization"] is None
    assert found.unknown["/0/details/utilization"] == "it sleeps, and asking would wake it"


def test_a_unique_id_is_of_16_digits_and_zero_is_none() -> None:
    for number, expected in ((0xDEADBEEF, "0x00000000deadbeef"), (0, None)):
        text = f"{KFD[f'{NODES}/1/properties']}unique_id {number}\n"
        device = the_card(CARD | KFD | {f"{NODES}/1/properties": text})
        assert device.details.get("unique_id") == expected


def test_what_a_tool_says_of_a_whole_card_is_not_put_into_its_partitions() -> None:
    facts = recorded("amd-cpx")
    static = STATIC.replace("0000:03:00.0", "0000:05:00.0")
    facts["commands"] = {"amd-smi static --json": static, "amd-smi metric --json": METRIC}
    facts["files"] = without(facts["files"], "mem_banks")
    found = devices(**facts)
    assert found["0000:05:00.0"].memory.usable_bytes is None
    assert found["0000:05:00.0/xcp-0"].memory.reported_bytes is None


@pytest.mark.parametrize("name", ["amd-workstation", "amd-mi300x", "amd-cpx", "amd-strix-halo"])
def test_the_sources_of_a_machine_agree(name: str) -> None:
    assert all("conflicts" not in device.details for device in devices(**recorded(name)).values())


def test_what_is_in_use_is_told_by_one_source_and_is_no_conflict() -> None:
    used = {f"{NODES}/1/mem_banks/0/used_memory": "4000000000\n", f"{BUS}/unique_id": "00000000deadbeef\n"}
    text = f"{KFD[f'{NODES}/1/properties']}unique_id {0xDEADBEEF}\nmax_engine_clk_fcompute 2482\n"
    clocks = {f"{BUS}/pp_dpm_sclk": "0: 500Mhz *\n1: 3220Mhz \n", f"{NODES}/1/properties": text}
    device = the_card(CARD | KFD | used | clocks)
    assert device.memory.used_bytes == 27000000
    assert device.details["core_clock_max_mhz"] == 3220
    assert "conflicts" not in device.details


def test_a_mask_may_name_a_card_by_its_unique_id() -> None:
    text = f"{KFD[f'{NODES}/1/properties']}unique_id {0xDEADBEEF}\n"
    files = CARD | KFD | {f"{NODES}/1/properties": text}
    assert the_card(files, env={"ROCR_VISIBLE_DEVICES": "GPU-00000000deadbeef"}).visible
    assert not the_card(files, env={"ROCR_VISIBLE_DEVICES": "GPU-00000000deadbee0"}).visible


def test_an_npu_is_told_by_the_bus_alone() -> None:
    npu = devices(**recorded("amd-xdna"))["0000:c6:00.1"]
    assert (npu.kind, npu.arch, npu.memory.reported_bytes) == ("npu", "xdna2", None)


def test_a_machine_without_amd_is_asked_nothing() -> None:
    found = probed({"/proc/cpuinfo": "processor : 0\n"}, commands={"amd-smi static --json": STATIC})
    assert found.devices == ()
