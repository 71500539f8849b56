"""npu-smi is asked for as little as is needed."""

import pytest

from tests.unit.vendors.ascend.hosts import CARD, MIB, TABLE, host_of
from vllm_probe.core.system import CommandResult
from vllm_probe.vendors.ascend.smi import read

MAP = "NPU ID  Chip ID  Chip Logic ID  Chip Phy-ID  Chip Name\n0       0        4              2            Ascend910\n"
LIST = "Total Count : 1\nNPU ID : 3\nChip Count : 2\n"
USAGES = "NPU ID : 3\nChip Count : 2\nHBM Capacity(MB) : 65536\nHBM Usage Rate(%) : 50\nChip ID : 0\n"
BOARD = "NPU ID : 3\nSoftware Version : 25.0\nPCIe Bus Info : 0000:C1:00.0\nChip Count : 2\n"


def test_the_map_adds_the_numbers_that_the_table_lacks() -> None:
    (device,) = read(host_of(CARD, commands={"npu-smi info": TABLE, "npu-smi info -m": MAP}))["devices"]
    assert (device["id"], device["logic"], device["phy"], device["name"]) == ("0000:c1:00.0", 4, 2, "910B4")


def test_where_there_is_no_table_each_card_of_the_list_is_asked() -> None:
    commands = {
        "npu-smi info": "a table of another world",
        "npu-smi info -l": LIST,
        "npu-smi info -t usages -i 3": USAGES,
        "npu-smi info -t board -i 3": BOARD,
        "npu-smi info -t health -i 3": "NPU ID : 3\nHealth : Alarm\nChip ID : 0\nHealth : OK\nChip ID : 1\n",
        "npu-smi info -t product -i 3": "NPU ID : 3\nProduct Type : Atlas 300I Duo\n",
    }
    first, second = read(host_of(CARD, commands=commands))["devices"]
    assert (first["card"], first["chip"], first["id"], first["driver"]) == (3, 0, "0000:c1:00.0", "25.0")
    assert first["memory"] == {"total": 65536 * MIB, "used": 32768 * MIB}
    assert (first["health"], second["health"], first["product"]) == ("alarm", "ok", "Atlas 300I Duo")
    assert "memory" not in second


def test_a_card_whose_memory_the_table_lacks_is_asked_by_itself() -> None:
    commands = {
        "npu-smi info": TABLE.replace("2768 / 32768", "NA / NA"),
        "npu-smi info -t usages -i 0": USAGES.replace(": 3", ": 0", 1),
    }
    (device,) = read(host_of(CARD, commands=commands))["devices"]
    assert device["memory"]["total"] == 65536 * MIB


def test_the_status_of_dcmi_is_kept_and_no_more_is_asked() -> None:
    text = "!rc=1\ndcmi module initialize failed. ret is -8005\n"
    assert read(host_of(CARD, commands={"npu-smi info": text})) == {"devices": [], "status": -8005}


def test_an_error_of_one_chip_beside_a_table_counts_for_what_that_chip_lacks() -> None:
    table = TABLE.replace("88.7        41", "88.7        NA")
    text = f"Failed to get temperature of npu 0 chip 0, ret is -8012\n{table}"
    (device,) = read(host_of(CARD, commands={"npu-smi info": text}))["devices"]
    assert (device["memory"]["total"], device["health"]) == (32768 * MIB, "ok")
    assert device["failed"]["temperature_c"] == -8012
    assert "health" not in device["failed"]
    assert "status" not in device


def test_an_error_of_a_chip_that_the_table_leaves_out_is_that_chips_status() -> None:
    text = f"{TABLE}\nget health of card 1 chip 0 failed, ret is -8008\n"
    listed, other = read(host_of(CARD, commands={"npu-smi info": text}))["devices"]
    assert "status" not in listed
    assert other == {"card": 1, "chip": 0, "status": -8008}


def test_an_error_of_the_driver_beside_a_table_counts_for_nothing() -> None:
    report = read(host_of(CARD, commands={"npu-smi info": f"dcmi: ret is -8255\n{TABLE}"}))
    assert "status" not in report
    assert len(report["devices"]) == 1


def test_a_tool_that_is_missing_or_hangs_says_so_and_costs_its_time_once() -> None:
    assert read(host_of(CARD)) == {"devices": [], "error": "there is no npu-smi"}
    host = host_of(CARD, commands={"npu-smi info": "!timeout"})
    begin = host.now()
    assert read(host) == {"devices": [], "error": "npu-smi did not answer in 3 s"}
    assert host.now() - begin == 3


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("!rc=1\nbash: npu-smi: Permission denied\n", 'npu-smi says "bash: npu-smi: Permission denied"'),
        ("starting\n[ERROR] DRV(1,npu-smi): open failed\ndone\n", 'npu-smi says "[ERROR] DRV(1,npu-smi): open failed"'),
        ("!rc=2\nusage\nwhat?\n", 'npu-smi says "what?"'),
        ("!rc=1\n", "npu-smi fails and says nothing"),
    ],
)
def test_a_tool_that_fails_with_words_of_its_own_says_them(text: str, error: str) -> None:
    assert read(host_of(CARD, commands={"npu-smi info": text})) == {"devices": [], "error": error}


def test_a_text_without_a_table_is_no_failure() -> None:
    assert read(host_of(CARD, commands={"npu-smi info": "a table of another world"})) == {"devices": []}


def test_a_map_that_hangs_leaves_what_the_table_told() -> None:
    host = host_of(CARD, commands={"npu-smi info": TABLE, "npu-smi info -m": "!timeout"})
    begin = host.now()
    (device,) = read(host)["devices"]
    assert device["memory"]["total"] == 32768 * MIB
    assert "logic" not in device
    assert host.now() - begin <= 3


def test_a_tool_outside_the_path_is_found() -> None:
    path = "/usr/local/sbin/npu-smi"
    host = host_of(CARD | {path: ""}, commands={f"{path} info": TABLE})
    assert host.run(("npu-smi", "info"), 1) == CommandResult(status="missing")
    assert len(read(host)["devices"]) == 1
