"""Which questions xpu-smi is asked, and what its failures mean."""

from typing import Any

import pytest

from tests.unit.detect.scenes import host_of
from tests.unit.vendors.intel import outputs
from tests.unit.vendors.intel.outputs import MIB
from vllm_probe.vendors.intel import smi

QUERY = f"xpu-smi --query-gpu={','.join(smi._COLUMNS)} --format=csv,noheader,nounits"


def read(commands: dict[str, str]) -> dict[str, Any]:
    return smi.read(host_of(commands=commands))


def test_1_tells_memory_of_one_device_at_a_time_and_its_use_in_the_statistics() -> None:
    report = read(
        {
            "xpu-smi discovery -j": outputs.LIST_1,
            "xpu-smi discovery -d 0 -j": outputs.ONE_1.replace('"memory_free_size_byte": "14000000000"', '"x": 0'),
            "xpu-smi stats -d 0 -j": outputs.STATS_1,
            "xpu-smi discovery -d 1 -j": outputs.ERROR,
        }
    )
    first, second = report["devices"]
    assert first["memory"] == {"total": 15300820992, "used": 40 * MIB}
    assert (first["name"], first["temperature_c"]) == ("Intel(R) Data Center GPU Flex 170", 48)
    assert second["id"] == "0000:3b:00.0"
    assert report["error"] == "xpu-smi says: Level Zero Initialization Error"


def test_2_is_not_asked_again_for_what_its_list_tells() -> None:
    listed = outputs.LIST_2.replace(f'"memory_free_size_byte": {24480 * MIB}', '"memory_free_size_byte": 1048576')
    (device,) = read({"xpu-smi discovery -j": listed})["devices"]
    assert device["memory"] == {"total": 24480 * MIB, "free": MIB}


@pytest.mark.parametrize(
    ("command", "text", "total"),
    [
        (QUERY, outputs.QUERY.partition("\n")[2].replace(", N/A\n", "\n").replace(", 41.25", ""), 24480 * MIB),
        ("xpu-smi", outputs.SUMMARY_2, 24480 * MIB),
        ("xpu-smi discovery", outputs.BOX_1, 131072 * MIB),
    ],
)
def test_any_list_will_do_where_there_is_no_json(command: str, text: str, total: int) -> None:
    assert read({command: text})["devices"][0]["memory"]["total"] == total


def test_a_list_without_devices_is_an_answer() -> None:
    assert read({"xpu-smi discovery -j": outputs.NONE_2, "xpu-smi": outputs.SUMMARY_2})["devices"] == []


def test_without_xpu_smi_there_are_no_devices_and_no_error() -> None:
    assert read({}) == {"devices": []}


@pytest.mark.parametrize("code", [-11, 139])
def test_a_crash_is_a_failure_of_the_tool(code: int) -> None:
    report = read({"xpu-smi discovery -j": f"!rc={code}\n", "xpu-smi": outputs.SUMMARY_2})
    assert report == {"devices": [], "error": "xpu-smi was killed by signal 11"}


def test_an_error_of_level_zero_is_told_with_any_exit_code() -> None:
    for head in ("!rc=1\n", ""):
        report = read({"xpu-smi discovery -j": f"{head}{outputs.ERROR}"})
        assert report == {"devices": [], "error": "xpu-smi says: Level Zero Initialization Error"}


def test_all_questions_together_take_four_seconds_at_most() -> None:
    host = host_of(commands={"xpu-smi discovery -j": "!timeout\n", "xpu-smi": outputs.SUMMARY_2})
    began = host.now()
    assert smi.read(host) == {"devices": [], "error": "xpu-smi did not answer in 4 s"}
    assert host.now() - began == 4


def test_a_device_that_cannot_be_asked_about_leaves_the_others() -> None:
    commands = {"xpu-smi discovery -j": outputs.LIST_1, "xpu-smi discovery -d 0 -j": "!timeout\n"}
    report = smi.read(host_of(commands=commands))
    assert [device["id"] for device in report["devices"]] == ["0000:3a:00.0", "0000:3b:00.0"]
    assert "did not answer" in report["error"]
