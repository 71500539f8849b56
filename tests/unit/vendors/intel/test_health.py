"""The state of Intel GPUs now, and who holds them."""

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.detect.scenes import HOSTS
from vllm_probe.core import codec
from vllm_probe.core.scene import Scene
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.intel.clients import parse_bytes, parse_client
from vllm_probe.vendors.intel.health import health

MIB = 1 << 20
CARD = "0000:03:00.0"
XE = """\
pos:\t0
drm-driver:\txe
drm-client-id:\t7
drm-pdev:\t0000:03:00.0
drm-total-system:\t0
drm-total-vram0:\t40 MiB
drm-resident-vram0:\t32768 KiB
drm-resident-gtt:\t512 KiB
"""


def states(name: str, **files: str) -> dict[str, dict[str, Any]]:
    scene: dict[str, Any] = deepcopy(HOSTS[name])
    scene["facts"]["files"] |= files
    found: dict[str, dict[str, Any]] = health(ReplayHost(codec.from_json(Scene, scene)))["devices"]
    return found


def test_a_card_tells_what_is_free_and_how_it_runs() -> None:
    assert states("intel-arc-a770")[CARD] == {
        "free_bytes": (16225 - 1024) * MIB,
        "used_bytes": 1024 * MIB,
        "processes": [],
        "clock_max_mhz": 2400,
        "event_reasons": ["pl1"],
        "throttled": [],
        "temperature_c": 47,
        "power_limit_w": 190.0,
        "fans_rpm": [640],
    }


def test_what_is_free_is_not_told_where_what_is_in_use_is_unknown() -> None:
    found = states("intel-b580-xe")
    assert not {"free_bytes", "used_bytes"} & set(found[CARD])
    assert found[CARD]["throttled"] == ["thermal"]
    assert found["0000:00:02.0"]["free_bytes"] == (24 << 20) * 1024


def test_processes_that_hold_the_card_are_told_once_for_each_client() -> None:
    node = "!link /dev/dri/renderD129"
    files = {
        "/proc/70/fd/9": node,
        "/proc/70/fdinfo/9": XE,
        "/proc/70/fd/10": node,
        "/proc/70/fdinfo/10": XE,
        "/proc/70/fd/11": node,
        "/proc/70/fdinfo/11": XE.replace("\t7\n", "\t8\n"),
        "/proc/8/fd/3": "!link /dev/dri/card1",
        "/proc/8/fdinfo/3": "drm-pdev:\t0000:03:00.0\ndrm-client-id:\t1\n",
        "/proc/9/fd/3": node,
        "/proc/9/fdinfo/3": XE.replace("0000:03", "0000:04"),
        "/proc/9/fd/4": "!link /dev/null",
    }
    assert states("intel-b580-xe", **files)[CARD]["processes"] == [
        {"pid": 8, "bytes": None, "kind": "unknown"},
        {"pid": 70, "bytes": 64 * MIB, "kind": "unknown"},
    ]


def test_a_card_that_cannot_be_asked_says_why_and_one_that_sleeps_nothing() -> None:
    assert states("intel-survivability")[CARD] == {"lost": "its firmware did not boot"}
    assert states("intel-asleep")[CARD] == {}
    taken = {f"/sys/bus/pci/devices/{CARD}/driver": "!link ../../../bus/pci/drivers/vfio-pci"}
    assert "vfio-pci is bound" in states("intel-arc-a770", **taken)[CARD]["lost"]


@pytest.mark.parametrize(("name", "size"), [("total-vram0", 40), ("total-local0", 40), ("resident-local1", 40)])
def test_i915_and_xe_name_their_memory_apart(name: str, size: int) -> None:
    assert parse_bytes(parse_client(f"drm-{name}: {size} KiB\n")) == size << 10


@given(st.text() | st.builds(lambda *lines: "\n".join(f"drm-{line}" for line in lines), st.text(), st.text()))
def test_any_text_of_a_node_is_read_without_an_error(text: str) -> None:
    size = parse_bytes(parse_client(text))
    assert size is None or size >= 0
    json.dumps(parse_client(text))
