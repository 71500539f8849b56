"""Clocks, sensors and the rest in the places where i915 and xe have them."""

from typing import Any

import pytest

from tests.unit.detect.scenes import host_of
from vllm_probe.vendors.intel import sysfs

ADDRESS = "0000:03:00.0"
BUS = f"/sys/bus/pci/devices/{ADDRESS}"
CARD = f"{BUS}/drm/card1"
CHIP = f"{BUS}/hwmon/hwmon4"


def read(**files: str) -> dict[str, Any]:
    return sysfs.read(host_of(files=files), ADDRESS)


def test_i915_shows_clocks_with_the_card_and_xe_with_the_tile() -> None:
    i915 = {
        f"{CARD}/gt_act_freq_mhz": "1900\n",
        f"{CARD}/gt_max_freq_mhz": "2000\n",
        f"{CARD}/gt_RP0_freq_mhz": "2400\n",
    }
    block = f"{BUS}/tile0/gt0/freq0"
    xe = {f"{block}/act_freq": "1900\n", f"{block}/max_freq": "2000\n", f"{block}/rp0_freq": "2400\n"}
    expected = {"clock_mhz": 1900, "clock_max_mhz": 2400}
    assert read(**i915) == expected
    assert read(**xe) == expected | {"tiles": 1}


def test_a_clock_of_a_gpu_that_rests_is_left_out() -> None:
    assert read(**{f"{CARD}/gt_act_freq_mhz": "0\n"}) == {}


def test_the_card_is_found_by_its_link_where_the_bus_does_not_list_it() -> None:
    link = {
        "/sys/class/drm/card0/device": "!link ../../../0000:02:00.0",
        "/sys/class/drm/card2/device": f"!link ../../../{ADDRESS}",
        "/sys/class/drm/card2-DP-1/device": "!link ../../card2",
        "/sys/class/drm/renderD129/device": f"!link ../../../{ADDRESS}",
        "/sys/class/drm/card2/gt_act_freq_mhz": "1100\n",
    }
    assert read(**link) == {"clock_mhz": 1100}
    assert sysfs.nodes(host_of(files=link), ADDRESS) == {"drm_card": 2, "drm_render": 129}


def test_reasons_of_throttling_are_the_kernels_words_and_power_limits_do_no_harm() -> None:
    i915 = {
        f"{CARD}/gt/gt0/throttle_reason_status": "1\n",
        f"{CARD}/gt/gt0/throttle_reason_pl1": "1\n",
        f"{CARD}/gt/gt0/throttle_reason_thermal": "1\n",
        f"{CARD}/gt/gt0/throttle_reason_ratl": "0\n",
    }
    assert read(**i915) == {"event_reasons": ["pl1", "thermal"], "throttled": ["thermal"]}
    xe = {
        f"{BUS}/tile0/gt0/freq0/throttle/status": "1\n",
        f"{BUS}/tile0/gt0/freq0/throttle/reason_pl2": "1\n",
        f"{BUS}/tile1/gt2/freq0/throttle/reason_vr_tdc": "1\n",
    }
    assert read(**xe) == {"tiles": 2, "event_reasons": ["pl2", "vr_tdc"], "throttled": ["vr_tdc"]}


def test_reasons_that_cannot_be_read_are_not_taken_for_none() -> None:
    assert "event_reasons" not in read(**{f"{CARD}/gt/gt0/throttle_reason_pl1": "!size 4096\n!absent"})


def test_xe_labels_its_sensors_and_a_limit_of_0_is_switched_off() -> None:
    found = read(
        **{
            f"{CHIP}/name": "xe\n",
            f"{CHIP}/temp2_label": "pkg\n",
            f"{CHIP}/temp2_input": "55000\n",
            f"{CHIP}/temp3_label": "vram\n",
            f"{CHIP}/temp3_input": "66000\n",
            f"{CHIP}/power1_max": "0\n",
            f"{CHIP}/power2_max": "0\n",
            f"{CHIP}/power2_crit": "320000000\n",
            f"{CHIP}/fan1_input": "0\n",
            f"{CHIP}/fan2_input": "1200\n",
        }
    )
    assert found == {"temperature_c": 55, "memory_temperature_c": 66, "power_limit_w": 320.0, "fans_rpm": [0, 1200]}


def test_i915_has_its_sensors_under_the_first_number() -> None:
    found = read(**{f"{CHIP}/name": "i915\n", f"{CHIP}/temp1_input": "44000\n", f"{CHIP}/power1_max": "190000000\n"})
    assert found == {"temperature_c": 44, "power_limit_w": 190.0}


def test_memory_is_shown_by_intels_own_builds_alone() -> None:
    assert read(**{f"{CARD}/lmem_total_bytes": "17079205888\n"}) == {"memory": {"total": 17079205888}}
    tiles = {f"{BUS}/tile{i}/physical_vram_size_bytes": "68719476736\n" for i in (0, 1)}
    assert read(**tiles) == {"tiles": 2, "memory": {"total": 137438953472}}
    assert read(**{f"{CARD}/lmem_total_bytes": "0\n"}) == {}


def test_virtual_functions_are_counted_where_there_can_be_any() -> None:
    assert read(**{f"{BUS}/sriov_totalvfs": "31\n", f"{BUS}/sriov_numvfs": "2\n"}) == {
        "sriov": {"virtual_functions": 2, "most": 31}
    }
    assert read(**{f"{BUS}/sriov_totalvfs": "0\n"}) == {}


@pytest.mark.parametrize("listed", [True, False])
def test_survivability_mode_is_a_file_that_only_root_may_read(listed: bool) -> None:
    files = {f"{BUS}/survivability_mode": "!size 4096 0400 0:0 EACCES"} if listed else {}
    assert sysfs.failed_boot(host_of(files=files), ADDRESS) is listed


@pytest.mark.parametrize("text", ["", "N/A\n", "-1\n", "1.5\n", "9" * 40, "²"])
def test_what_is_no_number_is_not_known(text: str) -> None:
    assert read(**{f"{CARD}/gt_act_freq_mhz": text, f"{CHIP}/name": "xe\n", f"{CHIP}/temp2_input": text}) == {}
