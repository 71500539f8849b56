"""What nvidia-smi prints, in each of its formats and generations."""

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.detect.scenes import ROOT, host_of
from tests.unit.vendors.nvidia.cards import FIXTURES
from vllm_probe.vendors.nvidia import smi
from vllm_probe.vendors.nvidia.smi_csv import parse_csv
from vllm_probe.vendors.nvidia.smi_table import parse_table
from vllm_probe.vendors.nvidia.smi_words import parse_address, parse_error, parse_failure
from vllm_probe.vendors.nvidia.smi_xml import parse_xml

MIB = 1 << 20
_CAPTURES = ROOT.parent / "shared" / "data" / "captures" / "nvidia"
CAPTURES = {path.name: path.read_text(encoding="utf-8") for path in _CAPTURES.glob("*")} if _CAPTURES.exists() else {}
beside = pytest.mark.skipif(not CAPTURES, reason="the shared captures are not beside this checkout")

TABLE = """\
Mon Jan  5 10:00:00 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI {smi:<22} {driver:<33}{cuda:<20}|
|-----------------------------------------+------------------------+----------------------+
|   0  NVIDIA GeForce RTX 4060 ...  WDDM  |   00000000:01:00.0  On |                  N/A |
| N/A   44C    P8              3W /   80W |     812MiB /   8188MiB |      2%      Default |
|                                         |                        |                  N/A |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA L4                      On  |   0000000B:81:00.0 Off |                    0 |
| N/A   36C    P8             16W /   72W |       1MiB /  23034MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|    0   N/A  N/A            4321    C+G   ...\\browser.exe                        N/A    |
+-----------------------------------------------------------------------------------------+
"""


def test_the_oldest_schema_is_read() -> None:
    report = parse_xml(FIXTURES["v10"])
    assert (report["driver"], report["cuda_version"]) == ("470.57.02", "11.4")
    assert report["devices"] == [
        {
            "id": "0000:3b:00.0",
            "pci_id": "10de:1bb3",
            "name": "Tesla P4",
            "uuid": "GPU-00000000-0000-0000-0000-0000000000a1",
            "memory": {"total": 7611 * MIB, "free": 6411 * MIB, "used": 1200 * MIB},
            "event_reasons": ["power_cap", "hardware_thermal"],
            "compute_mode": "exclusive_process",
            "processes": [
                {"pid": 4021, "bytes": 1190 * MIB, "kind": "compute"},
                {"pid": 77, "bytes": None, "kind": "graphics"},
            ],
            "minor": 2,
            "utilization": 93,
            "temperature_c": 84,
            "sm_clock_mhz": 1101,
            "sm_clock_max_mhz": 1531,
            "memory_clock_mhz": 2999,
            "memory_clock_max_mhz": 3003,
            "max_generation": 3,
            "current_generation": 1,
            "max_width": 16,
            "current_width": 8,
            "power_w": 74.51,
            "power_limit_w": 70.0,
            "power_default_w": 75.0,
            "ecc": True,
            "display_active": False,
            "persistence": True,
        },
        {"id": "000a:d8:00.0"},
    ]


def test_mig_instances_are_devices_of_the_gpu_however_many_are_said_to_be_attached() -> None:
    (device,) = parse_xml(FIXTURES["v12-mig"])["devices"]
    assert (device["mig"], device["memory"]["total"]) == (True, 81559 * MIB)
    assert "utilization" not in device
    assert (device["power_w"], device["power_limit_w"], device["power_default_w"]) == (48.2, 310.0, 350.0)
    assert device["parts"] == [
        {
            "gpu_instance": 2,
            "compute_instance": 0,
            "multiprocessors": 60,
            "memory": {"total": 40448 * MIB, "free": 40403 * MIB, "used": 44 * MIB, "reserved": 0},
        },
        {"gpu_instance": 9, "compute_instance": 0},
    ]


def test_a_vgpu_without_a_licence_is_told_and_what_it_may_not_read_is_left_out() -> None:
    (device,) = parse_xml(FIXTURES["v13-vgpu"])["devices"]
    assert (device["virtualization"], device["licence"]) == ("vgpu", "unlicensed")
    assert {"power_w", "power_limit_w", "temperature_c", "event_reasons"}.isdisjoint(device)


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [
        ("Driver Version: 551.86", "CUDA Version: 12.4"),
        ("KMD Version: 551.86", "CUDA UMD Version: 12.4"),
    ],
)
def test_the_table_is_read_with_either_header_and_a_name_that_it_cuts_off_is_left_out(driver: str, cuda: str) -> None:
    report = parse_table(TABLE.format(smi="551.70", driver=driver, cuda=cuda))
    assert (report["driver"], report["cuda_version"]) == ("551.86", "12.4")
    assert report["devices"] == [
        {"index": 0, "id": "0000:01:00.0", "memory": {"used": 812 * MIB, "total": 8188 * MIB}},
        {"index": 1, "name": "NVIDIA L4", "id": "000b:81:00.0", "memory": {"used": 1 * MIB, "total": 23034 * MIB}},
    ]


def test_mig_instances_in_a_table_belong_to_their_gpu() -> None:
    rows = "| {gpu:>2}    {gi}   0   {dev}  |   100MiB / 19968MiB  | 28      0 |  2   0    1    0    0 |\n"
    parts = rows.format(gpu=1, gi=3, dev=0) + rows.format(gpu=1, gi=5, dev=1)
    first, second = parse_table(TABLE.format(smi="", driver="Driver Version: 1", cuda="") + parts)["devices"]
    assert "parts" not in first
    assert [(part["gpu_instance"], part["memory"]["used"]) for part in second["parts"]] == [
        (3, 100 * MIB),
        (5, 100 * MIB),
    ]
    assert second["name"] == "NVIDIA L4"


def test_the_csv_is_read_by_its_header_and_without_one_by_the_query() -> None:
    header = "index, name, memory.total [MiB], power.draw [W], pci.bus_id"
    assert parse_csv(f"{header}\n3, NVIDIA L4, 23034 MiB, [N/A], 00000000:81:00.0\n")["devices"] == [
        {"index": 3, "name": "NVIDIA L4", "memory": {"total": 23034 * MIB}, "id": "0000:81:00.0"}
    ]
    assert parse_csv("power.draw [W], temperature.gpu\n3.14 W, 36\n")["devices"] == [
        {"index": 0, "power_w": 3.14, "temperature_c": 36}
    ]
    rows = "NVIDIA A100, 80 GB, 555.85, 8.0\n[N/A], 580.95.05, [N/A]\nFailed to initialize NVML\n"
    report = parse_csv(rows, ("name", "driver_version", "compute_cap"))
    assert report == {
        "driver": "580.95.05",
        "devices": [{"index": 0, "name": "NVIDIA A100, 80 GB", "arch": "sm_80"}, {"index": 1}],
    }


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure", 9),
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.144", 18),
        ("Failed to initialize NVML: Unknown Error", 999),
        ("Failed to initialize NVML: Insufficient Permissions", 4),
        ("Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system", 15),
        ("Unable to determine the device handle for GPU 0000:02:00.0: GPU requires reset", 16),
        ("Unable to determine the device handle for GPU 0000:02:00.0: Insufficient External Power", 8),
        ("Unable to determine the device handle for GPU 0000:02:00.0: Timeout", 10),
        ("Failed to initialize NVML: GPU access blocked by the operating system", 17),
        ("No devices were found", None),
        ("| N/A   39C    P8   4W /  N/A  | Not Supported |", None),
        ("", None),
    ],
)
def test_the_text_of_a_failure_has_the_status_of_nvml(text: str, status: int | None) -> None:
    assert parse_error(text) == status


def test_a_failure_that_names_a_device_is_of_that_device() -> None:
    text = (
        "Unable to determine the device handle for GPU 0000:0A:00.0: GPU is lost.  Reboot the system\n"
        "Unable to determine the device handle for GPU1: 00000000:0B:00.0: Unknown Error\n"
        "Unable to determine the device handle for GPU0000:0C:00.0: Timeout\n"
        "WARNING: infoROM is corrupted at gpu 0000:0D:00.0\n"
    )
    devices = {"0000:0a:00.0": 15, "0000:0b:00.0": 999, "0000:0c:00.0": 10}
    assert parse_failure(text) == (None, devices)
    assert parse_failure(f"{text}Failed to initialize NVML: Driver/library version mismatch") == (18, devices)


UNKNOWN = ["GPU is lost", "GPU requires reset", "Insufficient Permissions", "Not Supported", "ERR!", "Unknown Error"]


@pytest.mark.parametrize("word", [*UNKNOWN, "[N/A]", "Timeout", ""])
def test_an_error_in_place_of_a_value_is_no_value(word: str) -> None:
    xml = f"<gpu id='00000000:01:00.0'><product_name>{word}</product_name><uuid>{word}</uuid></gpu>"
    status = {"GPU is lost": {"status": 15}, "GPU requires reset": {"status": 16}}.get(word, {})
    assert parse_xml(f"<nvidia_smi_log>{xml}</nvidia_smi_log>")["devices"] == [{"id": "0000:01:00.0", **status}]
    rows = f"index, name, uuid, memory.total [MiB]\n1, {word}, [{word}], {word}\n"
    assert parse_csv(rows)["devices"] == [{"index": 1, **status}]
    row = f"|   1  {word:<26}  ERR! |   00000000:02:00.0 ERR!|                 ERR! |\n| ERR!  | {word} |"
    assert parse_table(row)["devices"] == [{"index": 1, "id": "0000:02:00.0", **status}]
    row = f"|   1  {word:<28}ERR!|00000000:02:00.0 ERR!|                 ERR! |\n| ERR!  | {word} |"
    assert parse_table(row)["devices"] == [{"index": 1, "id": "0000:02:00.0", **status}]
    assert parse_table(row.replace("00000000:02:00.0 ", ""))["devices"] == [{"index": 1, **status}]


@pytest.mark.parametrize("text", ["", "Failed to initialize NVML", "<nvidia_smi_log>", "<a/>", "<nvidia_smi_log></x>"])
def test_what_is_no_answer_lists_no_device(text: str) -> None:
    assert parse_xml(text)["devices"] == []
    assert parse_table(text)["devices"] == []
    assert parse_csv(text)["devices"] == []


def test_entities_that_multiply_are_refused() -> None:
    bomb = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaaaaaaaa">]><nvidia_smi_log><driver_version>&a;</driver_version>'
    assert parse_xml(f"{bomb}</nvidia_smi_log>") == {"devices": []}


def test_the_best_format_is_enough_and_what_it_lacks_comes_from_the_next() -> None:
    query = f"nvidia-smi {' '.join(smi._CSV)}"
    csv = "NVIDIA L40S-24Q, 590.44.01, 8.9\n"
    host = host_of(commands={"nvidia-smi -q -x": FIXTURES["v13-vgpu"], query: csv, "nvidia-smi": "!timeout"})
    report = smi.read(host)
    assert "error" not in report
    (device,) = report["devices"]
    assert (report["driver"], device["arch"], device["memory"]["total"]) == ("590.44.01", "sm_89", 24576 * MIB)


def test_the_table_is_read_where_there_is_nothing_better() -> None:
    table = TABLE.format(smi="551.70", driver="Driver Version: 551.86", cuda="CUDA Version: 12.4")
    report = smi.read(host_of(commands={"nvidia-smi": table}))
    assert [device["memory"]["total"] for device in report["devices"]] == [8188 * MIB, 23034 * MIB]
    assert "error" not in report


def test_a_tool_that_hangs_costs_its_time_once() -> None:
    host = host_of(commands={"nvidia-smi -q -x": "!timeout", "nvidia-smi": "!timeout"})
    begin = host.now()
    assert "did not answer" in smi.read(host)["error"]
    assert host.now() - begin <= smi._TIMEOUT_S


def test_all_formats_share_the_time_of_one() -> None:
    query = f"nvidia-smi {' '.join(smi._CSV)}"
    host = host_of(commands={"nvidia-smi -q -x": "no answer", query: "!timeout"})
    begin = host.now()
    smi.read(host)
    assert host.now() - begin == smi._TIMEOUT_S


def test_a_missing_tool_is_said() -> None:
    assert smi.read(host_of()) == {"devices": [], "error": "there is no nvidia-smi"}


def test_under_wsl_the_tool_is_found_beside_the_libraries() -> None:
    program = "/usr/lib/wsl/lib/nvidia-smi"
    host = host_of(files={program: "!size 9"}, commands={f"{program} -q -x": FIXTURES["v10"]})
    assert smi.read(host)["devices"][0]["name"] == "Tesla P4"
    both = {"nvidia-smi -q -x": FIXTURES["v13-vgpu"], f"{program} -q -x": FIXTURES["v10"]}
    host = host_of(files={program: "!size 9"}, commands=both)
    assert smi.read(host)["devices"][0]["name"] == "NVIDIA L40S-24Q"


@beside
@pytest.mark.parametrize(
    ("name", "totals"),
    [
        ("smi-x-v10-418-p400.xml", [2095054848]),
        ("smi-x-v11-515-t4.xml", [16106127360]),
        ("smi-x-v11-515-a10g.xml", [24146608128]),
        ("smi-x-v12-535-a100-80g-x4-mig.xml", [85899345920]),
        ("smi-x-v12-536-rtx3080-windows.xml", [10737418240]),
        ("smi-x-v13-595-rtx4000sff.xml", [21469593600]),
        ("smi-table-580-gb10.txt", [None]),
        ("smi-csv-gb10.csv", [None]),
        ("smi-table-610-rtx5090.txt", [34190917632] * 2),
        ("smi-table-555-wsl2-gtx1080ti.txt", [11811160064]),
    ],
)
def test_a_real_output_gives_its_devices(name: str, totals: list[int | None]) -> None:
    parse: Any = {"xml": parse_xml, "csv": parse_csv, "txt": parse_table}[name[-3:]]
    assert [device.get("memory", {}).get("total") for device in parse(CAPTURES[name])["devices"]] == totals


@beside
def test_real_mig_instances_are_found() -> None:
    (device,) = parse_xml(CAPTURES["smi-x-v12-535-a100-80g-x4-mig.xml"])["devices"]
    found = [(part["gpu_instance"], part["multiprocessors"], part["memory"]["total"]) for part in device["parts"]]
    assert found == [(number, 14, 20937965568) for number in (3, 4, 5, 6)]
    (device,) = parse_table(CAPTURES["smi-mig-table-a100-40g.txt"])["devices"]
    assert [part["memory"]["total"] for part in device["parts"]] == [20937965568] * 2
    assert device["index"] == 1


@beside
def test_a_real_header_tells_the_driver_and_not_the_version_of_the_tool() -> None:
    found = {name: parse_table(text).get("driver") for name, text in CAPTURES.items() if name.startswith("smi-table")}
    assert found == {
        "smi-table-555-wsl2-gtx1080ti.txt": "555.85",
        "smi-table-580-gb10.txt": "580.95.05",
        "smi-table-610-rtx5090.txt": "610.57.04",
    }


@beside
def test_real_failures_have_four_causes() -> None:
    assert [parse_error(line) for line in CAPTURES["nvml-error-texts.txt"].splitlines()] == [9, 18, 999, None, None]


def changed(texts: list[str]) -> st.SearchStrategy[str]:
    """A real text of which a stretch is replaced."""

    def splice(text: str, at: int, length: int, put: str) -> str:
        at %= len(text)
        return text[:at] + put + text[at + length :]

    return st.builds(splice, st.sampled_from(texts), st.integers(0, 1 << 16), st.integers(0, 200), st.text(max_size=20))


ROWS = ["NVIDIA L4, 550.54, 8.9\n[N/A], 1, [N/A]\n", "name, memory.total [MiB], power.draw [W]\nGB10, [N/A], 3.1 W\n"]
TABLES = [TABLE, *(text for name, text in CAPTURES.items() if "table" in name)]
XMLS = [*FIXTURES.values(), *(text for name, text in CAPTURES.items() if name.endswith("xml"))]


def sound(report: dict[str, Any]) -> None:
    """Nothing in place of an unknown: sizes are of something, words are words."""
    for device in report["devices"]:
        assert all(
            value not in {None, "", "N/A", *UNKNOWN} for value in device.values() if isinstance(value, str | None)
        )
        for each in (device, *device.get("parts", ())):
            assert each.get("memory", {"total": 1}).get("total", 0) > 0
        assert re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", device.get("id", "0000:00:00.0"))


@given(st.text() | changed(XMLS))
def test_any_text_is_read_as_xml(text: str) -> None:
    sound(parse_xml(text))


@given(st.text(alphabet="|0123456789MiB/ NA.:OnOff\n") | changed(TABLES))
@example(f"|   4{' ' * 30}Off |   0000000B:81:00.0 Off |")
def test_any_text_is_read_as_a_table(text: str) -> None:
    sound(parse_table(text))
    assert parse_error(text) != 0


@given(st.text(alphabet='aN/A[],. 0123456789\n"') | st.text() | changed(ROWS), st.booleans())
def test_any_text_is_read_as_csv(text: str, header: object) -> None:
    sound(parse_csv(text, () if header else ("name", "driver_version", "compute_cap")))


@given(st.text())
def test_any_text_is_an_address_or_none(text: str) -> None:
    assert parse_address(text) is None or ":" in text
