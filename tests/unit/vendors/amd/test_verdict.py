"""Whether an AMD GPU can be used, why not, and what to run."""

from collections.abc import Mapping, Sequence

import pytest

from tests.unit.detect.scenes import STAMP
from tests.unit.vendors.amd.hosts import BUS, CARD, KFD, NODES, RUNTIME, devices, recorded, the_card, without
from vllm_probe.core import codec
from vllm_probe.core.scene import Scene
from vllm_probe.core.system import CommandResult
from vllm_probe.detect.inventory import take_inventory
from vllm_probe.host.record import RecordingHost
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.amd import PLUGIN
from vllm_probe.vendors.amd.probe import probe
from vllm_probe.vendors.registry import PortableDeviceManager

STATUS = "/proc/self/status"
RENDER = "/dev/dri/renderD128"
ASLEEP = {f"{BUS}/power_state": "D3cold\n"}
SUSPENDED = {f"{BUS}/power_state": "D3hot\n", f"{BUS}/power/runtime_status": "suspended\n"}


def runtime(status: object) -> dict[str, object]:
    return {"libhsa-runtime64.so.1": {"calls": {"hsa_init": status}}}


def test_a_card_that_kfd_lists_and_the_runtime_starts_with_is_usable() -> None:
    device = the_card(CARD | KFD)
    assert device.usable
    assert device.verdict.reason == "KFD lists it as node 1 and the ROCm runtime starts"
    assert device.indices == {"drm_card": 1, "drm_render": 128, "kfd": 1, "hip": 0}


def test_without_kfds_topology_a_runtime_that_starts_is_enough() -> None:
    device = the_card(CARD)
    assert device.usable
    assert device.indices["hip"] == 0


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        (without(KFD, "nodes/1/"), "KFD does not list it, so ROCm cannot use it: the slot lacks PCIe atomics"),
        (KFD | {f"{NODES}/1/properties": "!size 0 0444 0:0\n!absent"}, "KFD refuses to tell of it: the device cgroup"),
        (KFD | {"/dev/kfd": "!absent"}, "there is no /dev/kfd, without which ROCm finds no GPU"),
        (
            KFD | {"/dev/kfd": "!chr 235:0 0666 0:0 EPERM"},
            "the device cgroup denies /dev/kfd; start the container with",
        ),
        (KFD | {"/dev/kfd": "!chr 235:0 0666 0:0 EACCES"}, "a security module keeps this process out of /dev/kfd"),
        (KFD | {"/dev/kfd": "!chr 235:0 0666 0:0 EINVAL"}, "/dev/kfd is not the node that the kernel has now"),
        (KFD | {"/dev/kfd": "!chr 235:0 0666 0:0 ENOMEM"}, "the kernel had no memory to open /dev/kfd"),
        (KFD | {"/dev/kfd": "!chr 235:0 0666 0:0 EBUSY"}, "/dev/kfd does not open: EBUSY"),
        (KFD | {RENDER: "!chr 226:128 0666 0:0 EPERM"}, f"the device cgroup denies {RENDER}"),
        (KFD | {"/dev/kfd": "!chr 235:0 0660 0:7"}, "/dev/kfd has mode 0660 and group 7, in which this process is not"),
        (KFD | {f"{BUS}/driver": "!link x/vfio-pci"}, "it is bound to vfio-pci, for a virtual machine"),
    ],
)
def test_what_stands_in_the_way_is_named(files: dict[str, str], reason: str) -> None:
    device = the_card(CARD | files)
    assert (device.usable, device.verdict.code) == (False, "unusable")
    assert reason in device.verdict.reason
    assert "hip" not in device.indices


def test_a_render_node_that_only_kfd_tells_of_is_judged_by_its_mode() -> None:
    files = without(CARD, "/drm/") | KFD | {"/dev/dri/renderD200": "!chr 226:200 0666 0:0"}
    device = the_card(files | {RENDER: "!chr 226:128 0660 0:9"})
    assert device.verdict.reason == (
        f'{RENDER} has mode 0660 and group 9, in which this process is not; run `sudo usermod -aG 9 "$USER"`'
    )


@pytest.mark.parametrize(
    ("libs", "code", "reason"),
    [
        (runtime(4104), "unusable", "hsa_init gives 4104: there is no GPU that KFD lets it use; see `sudo dmesg"),
        (runtime(4096), "unusable", "hsa_init gives 4096: an error that it does not name"),
        (runtime(4200), "unusable", "hsa_init gives 4200: see `sudo dmesg"),
        (runtime("timeout"), "unknown", "KFD lists it as node 1; hsa_init did not return within 4 s, so whether torch"),
        ({}, "unknown", "KFD lists it as node 1; no ROCm runtime is installed, which torch's ROCm build brings"),
        ({"libhsa-runtime64.so.1": {"calls": {}}}, "unusable", "does not start: no function hsa_init"),
        (
            {"libhsa-runtime64.so.1": {"load": "error: libnuma.so.1: cannot open shared object file: No such file"}},
            "unusable",
            "the ROCm runtime does not start: libnuma.so.1: cannot open shared object file",
        ),
    ],
)
def test_a_runtime_that_fails_is_not_one_that_is_missing_or_slow(
    libs: dict[str, object], code: str, reason: str
) -> None:
    device = the_card(CARD | KFD, libs=libs)
    assert (device.usable, device.verdict.code) == (False, code)
    assert reason in device.verdict.reason


@pytest.mark.parametrize("place", ["torch/lib", "_rocm_sdk_core/lib"])
def test_the_runtime_of_a_wheel_is_asked_where_the_system_has_none(place: str) -> None:
    path = f"/usr/lib/python3/site-packages/{place}/libhsa-runtime64.so"
    assert the_card(CARD | KFD | {path: "!size 9"}, libs={path: {"calls": {"hsa_init": 0}}}).usable


@pytest.mark.parametrize("name", ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
@pytest.mark.parametrize("value", ["", "-1", "3"])
def test_what_only_a_mask_hides_stays_usable(name: str, value: str) -> None:
    for files in (CARD | KFD, CARD):
        device = the_card(files, env={name: value})
        assert (device.usable, device.visible, device.verdict.code) == (True, False, "hidden")
        assert f"{name}={value} hides it; run `unset {name}`" in device.verdict.reason
        assert "hip" not in device.indices


def test_a_mask_that_names_the_card_hides_nothing() -> None:
    assert the_card(CARD | KFD, env={"HIP_VISIBLE_DEVICES": "0"}).visible


def test_a_mask_does_not_make_a_card_usable_that_was_not_asked() -> None:
    device = the_card(CARD | KFD, env={"HIP_VISIBLE_DEVICES": "-1"}, libs={})
    assert (device.usable, device.verdict.code) == (False, "hidden")
    assert device.verdict.reason.endswith("whether it can be used was not checked")


def test_a_mask_does_not_hide_that_a_card_is_unusable() -> None:
    device = the_card(CARD | without(KFD, "nodes/1/"), env={"HIP_VISIBLE_DEVICES": "-1"})
    assert device.verdict.code == "unusable"


def test_masks_without_kfds_order_hide_only_where_they_hide_all() -> None:
    second = {path.replace("0000:03:00.0", "0000:83:00.0"): text for path, text in CARD.items()}
    for value, visible in (("-1", False), ("1", True)):
        found = devices(CARD | second, libs=RUNTIME, env={"HIP_VISIBLE_DEVICES": value})
        assert {device.visible for device in found.values()} == {visible}
        assert all("hip" not in device.indices for device in found.values())


class Sleeping(ReplayHost):
    def open_errno(self, path: str) -> int:
        raise AssertionError(f"opened {path}")

    def isolated(self, function: str, timeout_s: float) -> object:
        raise AssertionError(f"called {function} for {timeout_s} s")

    def run(self, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None) -> CommandResult:
        raise AssertionError(f"ran {argv} for {timeout_s} s with {env}")


@pytest.mark.parametrize("asleep", [ASLEEP, SUSPENDED], ids=["D3cold", "suspended"])
def test_nothing_that_sleeps_is_woken(asleep: dict[str, str]) -> None:
    files = CARD | KFD | asleep | {f"{BUS}/gpu_busy_percent": "9\n"}
    (device,) = probe(Sleeping(codec.from_json(Scene, {"facts": {"files": files}}))).devices
    assert (device.usable, device.verdict.code) == (False, "unknown")
    assert "asleep" in device.verdict.reason
    assert device.details["utilization"] is None
    assert device.memory.reported_bytes == 25753026560
    bare = without(files, "mem_info", "mem_banks")
    (device,) = probe(Sleeping(codec.from_json(Scene, {"facts": {"files": bare}}))).devices
    assert device.memory.reported_bytes is None


@pytest.mark.parametrize("driver", ["!link ../../../bus/pci/drivers/vfio-pci", None])
def test_a_card_that_sleeps_for_another_driver_or_none_holds_up_nothing(driver: str | None) -> None:
    other = "/sys/bus/pci/devices/0000:04:00.0"
    files = {f"{other}/class": "0x030000", f"{other}/vendor": "0x1002", f"{other}/device": "0x744c"}
    files |= {f"{other}/power_state": "D3cold\n", **({f"{other}/driver": driver} if driver else {})}
    found = devices(CARD | KFD | files, libs=RUNTIME)
    assert found["0000:03:00.0"].verdict.code == "usable"
    assert found["0000:04:00.0"].verdict.code == "unusable"


def test_beside_one_that_sleeps_the_others_are_known_and_not_tried() -> None:
    second = {path.replace("0000:03:00.0", "0000:83:00.0"): text for path, text in CARD.items()}
    node = KFD[f"{NODES}/1/properties"].replace("location_id 768", "location_id 33536")
    found = devices(CARD | second | KFD | ASLEEP | {f"{NODES}/2/properties": node}, libs=RUNTIME)
    awake = found["0000:83:00.0"]
    assert (awake.verdict.code, awake.memory.reported_bytes) == ("unknown", 25753026560)
    assert "the ROCm runtime was not asked, because that wakes 0000:03:00.0" in awake.verdict.reason


MI300X = "/sys/bus/pci/devices/0000:05:00.0"


def quartered(*listed: int, mode: str = "QPX", refused: str = "!absent") -> dict[str, str]:
    """A card in `mode` of whose four partitions KFD lists some; the properties of the others are `refused`."""
    files = {path.replace("0000:03:00.0", "0000:05:00.0"): text for path, text in CARD.items()}
    files |= {f"{MI300X}/device": "0x74a1", f"{MI300X}/current_compute_partition": f"{mode}\n"}
    for part in range(4):
        text = f"simd_count 304\nsimd_per_cu 4\nlocation_id {0x500 + part}\ndomain 0\ndrm_render_minor {128 + part}\n"
        files[f"{NODES}/{part + 1}/properties"] = text if part in listed else refused
        if part in listed:
            files[f"/dev/dri/renderD{128 + part}"] = "!chr 226:128 0666 0:0"
    return files


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (quartered(0, 1, 2, 3), "only its parts compute: 0000:05:00.0/xcp-0 to xcp-3"),
        (
            quartered(0, 1, 3),
            "only its parts compute: 0000:05:00.0/xcp-0, xcp-1, xcp-3; KFD does not list 1 of its 4 parts",
        ),
        (
            quartered(2, refused="!size 0 0444 0:0\n!absent"),
            "only its parts compute: 0000:05:00.0/xcp-2; KFD refuses to tell of 3 of its 4 parts",
        ),
        (
            quartered(2, 3, mode="CPX", refused="!size 0 0444 0:0\n!absent"),
            "0000:05:00.0/xcp-2, xcp-3; KFD refuses to tell of 2 more, of this card or another",
        ),
    ],
)
def test_the_parts_that_kfd_keeps_from_this_process_are_counted(files: dict[str, str], says: str) -> None:
    assert devices(files, libs=RUNTIME)["0000:05:00.0"].verdict.reason.endswith(says)


def test_a_split_card_of_which_no_part_can_be_opened_names_none() -> None:
    files = quartered(0, 1, 2, 3) | {f"/dev/dri/renderD{128 + part}": "!chr 226:9 0660 0:9" for part in range(4)}
    card = devices(files, libs=RUNTIME)["0000:05:00.0"]
    assert card.verdict.reason == "it is split in mode QPX, and none of its parts computes"


def test_a_card_that_is_split_names_the_partitions_that_compute() -> None:
    found = devices(**recorded("amd-cpx"))
    card = found["0000:05:00.0"]
    assert (card.usable, card.verdict.code) == (False, "unusable")
    assert card.verdict.reason == "it is split in mode CPX, so only its parts compute: 0000:05:00.0/xcp-0 to xcp-7"
    assert (card.memory.reported_bytes, card.memory.usable_bytes) == (206141652992, None)
    part = found["0000:05:00.0/xcp-5"]
    assert part.usable
    assert part.details["parent"] == card.id
    assert part.indices == {"kfd": 7, "drm_render": 133, "hip": 5}
    assert found["0000:27:00.0"].indices["hip"] == 8


def test_a_partition_whose_own_node_is_denied_does_not_hide_the_others() -> None:
    facts = recorded("amd-cpx")
    facts["files"]["/dev/dri/renderD130"] = "!chr 226:130 0660 0:5"
    found = devices(**facts)
    assert [device.id for device in found.values() if not device.usable] == ["0000:05:00.0", "0000:05:00.0/xcp-2"]
    assert "/dev/dri/renderD130 has mode 0660 and group 5" in found["0000:05:00.0/xcp-2"].verdict.reason
    assert found["0000:05:00.0/xcp-3"].indices["hip"] == 2


def test_a_container_that_was_given_one_partition_has_that_one() -> None:
    facts = recorded("amd-cpx")
    nodes = [f"/dev/dri/renderD{minor}" for minor in range(128, 136) if minor != 130]
    found = devices(**facts | {"files": without(facts["files"], *nodes) | {"/.dockerenv": ""}})
    parts = {id_.rpartition("/")[2]: device for id_, device in found.items() if "/xcp-" in id_}
    assert [name for name, device in parts.items() if device.usable] == ["xcp-2"]
    assert parts["xcp-2"].indices["hip"] == 0
    assert parts["xcp-3"].verdict.reason == (
        "this container was not given /dev/dri/renderD131; "
        "start it with `--device /dev/kfd --device /dev/dri/renderD131`"
    )


def test_a_card_that_is_split_is_not_called_lost() -> None:
    scene = codec.from_json(Scene, {"facts": recorded("amd-cpx")})
    host = ReplayHost(scene)
    inventory = take_inventory(host, PortableDeviceManager(host, (PLUGIN,)), STAMP, lambda _: None)
    assert inventory.findings == ()
    assert inventory.unknown["/devices/0/memory/usable_bytes"].startswith("it is split")


def test_a_recording_holds_no_unique_id_and_replays_to_the_same_verdict() -> None:
    text = KFD[f"{NODES}/1/properties"] + f"unique_id {0xDEADBEEF12345678}\n"
    files = CARD | KFD | {f"{NODES}/1/properties": text, f"{BUS}/unique_id": "deadbeef12345678\n"}
    recorder = RecordingHost(ReplayHost(codec.from_json(Scene, {"facts": {"files": files, "libs": RUNTIME}})))
    (before,) = probe(recorder).devices
    written = recorder.scene()
    assert str(0xDEADBEEF12345678) not in str(written)
    assert "deadbeef12345678" not in str(written)
    (after,) = probe(ReplayHost(written)).devices
    assert (after.usable, after.verdict, after.memory) == (True, before.verdict, before.memory)
