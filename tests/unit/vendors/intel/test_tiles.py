"""Intel GPUs that Level Zero lists tile by tile."""

from typing import Any

from tests.unit.detect.scenes import HOSTS
from tests.unit.vendors.intel.machines import CARD, MIB, host_of, inventory, level_zero
from vllm_probe.core.device import Device
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.intel.probe import probe
from vllm_probe.vendors.intel.tiles import with_tiles
from vllm_probe.vendors.intel.verdict import Reports


def with_two_tiles(**facts: Any) -> ReplayHost:
    """A card that Level Zero lists as two devices of 15.1 GiB each, of which 1 GiB of the whole is in use."""
    calls = HOSTS["intel-arc-a770"]["facts"]["libs"]["libze_loader.so.1"]["calls"] | {"zeDeviceGet": 2}
    return host_of("intel-arc-a770", libs=level_zero(**calls), **facts)


def test_a_gpu_that_level_zero_lists_tile_by_tile_computes_tile_by_tile() -> None:
    result = probe(with_two_tiles())
    card, *tiles = [device for device in result.devices if device.id.startswith(CARD)]
    assert (card.details["level_zero_devices"], card.details["compute_units"]) == (2, 1024)
    assert (card.usable, card.memory.usable_bytes) == (False, None)
    assert card.verdict.reason == (
        "Level Zero lists it as 2 devices, so only its parts compute: 0000:03:00.0/tile-0 to tile-1"
    )
    assert card.indices == {"drm_card": 1, "drm_render": 128}
    for number, tile in enumerate(tiles):
        assert (tile.id, tile.usable, tile.verdict.code) == (f"{CARD}/tile-{number}", True, "usable")
        assert tile.indices == {"drm_card": 1, "drm_render": 128, "level_zero": number, "xpu": number}
        assert (tile.memory.kind, tile.memory.reported_bytes) == ("partition", 16225243136)
        assert tile.memory.usable_bytes == (16225 - 1024) * MIB
        assert (tile.details["compute_units"], tile.details["parent"]) == (512, CARD)
        assert result.unknown[f"/{result.devices.index(tile)}/memory/used_bytes"].endswith("of the whole card only")


def test_a_card_with_tiles_is_not_called_lost_and_a_tile_is_picked() -> None:
    found = inventory(with_two_tiles())
    assert (found.findings, found.picked.id) == ((), f"{CARD}/tile-0")


def test_a_tile_has_its_share_of_the_cards_bandwidth_where_level_zero_does_not_tell_it() -> None:
    card = Device(
        id=CARD,
        vendor="intel",
        kind="gpu",
        details={"memory_bandwidth_gb_s": 3276.8},
        sources={"/details/memory_bandwidth_gb_s": "derived"},
    )
    own: list[dict[str, Any]] = [{"ordinal": 0, "memory_bandwidth_gb_s": 1600.0}, {"ordinal": 1}]
    reports = Reports(level_zero={"status": 0, "devices": own})
    _, told, derived = (device for device, _ in with_tiles((card, {}), own, reports, card.verdict))
    assert (told.details["memory_bandwidth_gb_s"], derived.details["memory_bandwidth_gb_s"]) == (1600.0, 1638.4)
    assert derived.sources["/details/memory_bandwidth_gb_s"] == "derived"


def test_a_tile_over_which_level_zero_fails_leaves_the_other() -> None:
    card = Device(id=CARD, vendor="intel", kind="gpu")
    own: list[dict[str, Any]] = [{"ordinal": 0, "silent": "it hangs"}, {"ordinal": 1, "memory": {"total": MIB}}]
    readings = with_tiles((card, {}), own, Reports(level_zero={"status": 0, "devices": own}), card.verdict)
    assert [device.usable for device, _ in readings] == [False, False, True]
    assert readings[1][1]["/memory/reported_bytes"] == "Level Zero does not tell it of this part"
