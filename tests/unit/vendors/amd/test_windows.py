"""AMD GPUs behind Windows."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.vendors.amd.hosts import devices, recorded
from vllm_probe.vendors.amd.windows import parse_rocminfo


def test_rocminfo_names_the_gpu_and_the_runtime_says_that_it_works() -> None:
    facts = recorded("amd-wsl")
    device = devices(**facts)["dxg:0"]
    assert (device.name, device.arch, device.kind) == ("AMD Radeon RX 7900 XTX", "gfx1100", "gpu")
    assert (device.usable, device.details["compute_units"]) == (True, 96)
    assert device.sources["/name"] == "rocminfo"


def test_amd_smi_tells_the_memory_too() -> None:
    facts = recorded("amd-wsl")
    card = {
        "gpu": 0,
        "driver": "6.1.2",
        "asic": {"market_name": "AMD Radeon RX 9070"},
        "vram": {"size": {"value": 16304, "unit": "MB"}},
    }
    facts["commands"] = {"amd-smi static --json": json.dumps({"gpu_data": [card]})}
    device = devices(**facts)["dxg:0"]
    assert (device.name, device.memory.reported_bytes) == ("AMD Radeon RX 9070", 16304 << 20)
    assert device.driver is None


def test_the_graphics_of_a_processor_stay_integrated() -> None:
    facts = recorded("amd-wsl")
    facts["commands"]["rocminfo"] = facts["commands"]["rocminfo"].replace("gfx1100", "gfx1151")
    assert devices(**facts)["dxg:0"].kind == "igpu"


@pytest.mark.parametrize("answer", ["!missing", "!timeout", "Unable to open /dev/kfd read-write: Permission denied\n"])
def test_without_a_tool_that_names_it_the_gpu_is_listed(answer: str) -> None:
    facts = recorded("amd-wsl")
    facts["commands"]["rocminfo"] = answer
    device = devices(**facts)["dxg:0"]
    assert (device.name, device.usable) == (None, True)


@pytest.mark.parametrize(
    ("libs", "code"), [({}, "unknown"), ({"libhsa-runtime64.so.1": {"calls": {"hsa_init": 4104}}}, "unusable")]
)
def test_a_runtime_that_is_missing_or_fails_is_told(libs: dict[str, object], code: str) -> None:
    device = devices(**(recorded("amd-wsl") | {"libs": libs}))["dxg:0"]
    assert (device.usable, device.verdict.code) == (False, code)


def test_a_mask_hides_it() -> None:
    device = devices(**(recorded("amd-wsl") | {"env": {"HIP_VISIBLE_DEVICES": "-1"}}))["dxg:0"]
    assert (device.visible, device.verdict.code) == (False, "hidden")


@given(
    st.text()
    | st.lists(
        st.sampled_from(["Agent 1\n", "  Name:   gfx1100\n", "  Device Type:  GPU\n", "  Compute Unit: 0\n"])
    ).map("".join)
)
def test_any_text_gives_agents_without_units_of_zero(text: str) -> None:
    for agent in parse_rocminfo(text):
        assert agent.get("compute_units") != 0
