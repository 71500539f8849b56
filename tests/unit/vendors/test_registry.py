import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from vllm_probe.core.device import Device
from vllm_probe.core.errors import DeviceUnavailable, MissingExtra, PluginRefused, RecordingIncomplete
from vllm_probe.core.extras import extra_command
from vllm_probe.core.plugin import API_VERSION, Check, ProbeResult, VendorPlugin
from vllm_probe.core.scene import Facts, Scene
from vllm_probe.core.system import Host
from vllm_probe.core.values import Kind
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.null.adapter import NullAdapter
from vllm_probe.vendors.plugins import RefusedPlugin
from vllm_probe.vendors.registry import ROWS, PortableDeviceManager

HERE = __name__
HOST = ReplayHost(Scene(facts=Facts()))
never = threading.Event()
SHORT_S, LONG_S = 2.0, 60.0  # for a probe that hangs, and for those that end


def plugin(name: str, probe: str, **more: Any) -> VendorPlugin:
    return VendorPlugin(
        api_version=API_VERSION, name=name, device_types=(f"{name}_type", name), probe=f"{HERE}:{probe}", **more
    )


def manager(*plugins: VendorPlugin) -> PortableDeviceManager:
    return PortableDeviceManager(HOST, plugins, distributions={"bad": "bad-dist"})


def two_cards(host: Host) -> ProbeResult:
    devices = tuple(Device(id=id_, vendor="good", kind="gpu") for id_ in ("0000:41:00.0", "0000:03:00.0"))
    return ProbeResult(devices=devices, unknown={"/0/arch": "first", "/1/memory/used_bytes": "second", "": "odd"})


def same_card(host: Host) -> ProbeResult:
    return ProbeResult(devices=(Device(id="0000:41:00.0", vendor="bad", kind="npu"),))


def raising(host: Host) -> ProbeResult:
    raise KeyError("VRAM")


def hanging(host: Host) -> ProbeResult:
    never.wait()
    return ProbeResult()


def shapeless(host: Host) -> Any:
    return []


def deviceless(host: Host) -> Any:
    devices: Any = ({"id": "0000:41:00.0"},)
    return ProbeResult(devices=devices)


def unprintable(host: Host) -> Any:
    return ProbeResult(devices=(Device(id="x0", vendor="bad", kind="npu", details={"host": host}),))


def interrupting(host: Host) -> ProbeResult:
    raise KeyboardInterrupt


def chatting(host: Host) -> ProbeResult:
    print("found nothing")  # noqa: T201 - what is tested
    return ProbeResult()


def unrecorded(host: Host) -> ProbeResult:
    raise RecordingIncomplete("the recording does not hold `read /x`", hint="record it again")


CHECKS = (Check(ids=("ACM-01",), run=lambda host, devices, log: ()),)


@pytest.fixture(autouse=True)
def _release_hanging_probes() -> Iterator[None]:
    never.clear()
    yield
    never.set()


def test_devices_are_sorted_by_id_and_keep_their_reasons() -> None:
    found = manager(plugin("good", "two_cards")).probe_devices()
    assert [device.id for device in found.devices] == ["0000:03:00.0", "0000:41:00.0"]
    assert found.unknown == {"/0/memory/used_bytes": "second", "/1/arch": "first"}
    assert found.findings == ()


@pytest.mark.parametrize(
    ("probe", "row", "cause"),
    [
        ("raising", "PLG-05", "The probe of bad failed: it raised KeyError: 'VRAM'."),
        ("shapeless", "PLG-05", "The probe of bad failed: it raised TypeError: gave list, not a ProbeResult."),
        ("deviceless", "PLG-05", "The probe of bad failed: it raised TypeError: gave dict, not a Device."),
        (
            "unprintable",
            "PLG-05",
            "The probe of bad failed: it raised TypeError: Object of type ReplayHost is not JSON",
        ),
        ("interrupting", "PLG-05", "The probe of bad failed: it raised KeyboardInterrupt."),
        ("missing", "PLG-05", f"The probe of bad failed: it raised AttributeError: module '{HERE}' has no"),
        ("hanging", "PLG-06", "The probe of bad did not answer in 2 s, so no more is known of its"),
        ("same_card", "PLG-07", "The probe of bad reports 0000:41:00.0, which good reports too."),
        ("unrecorded", "REC-01", "The probe of bad asked for more than was recorded: the recording does not hold"),
    ],
)
def test_a_failing_probe_costs_its_own_devices_only(probe: str, row: str, cause: str) -> None:
    limit_s = SHORT_S if probe == "hanging" else LONG_S
    found = manager(plugin("good", "two_cards"), plugin("bad", probe)).probe_devices(limit_s)
    assert [device.vendor for device in found.devices] == ["good", "good"]
    (finding,) = found.findings
    assert finding.id == row
    assert finding.cause.startswith(cause)
    assert finding.fix[0].command == "export VLLM_PROBE_PLUGINS=good"
    assert not finding.blocking


def test_what_a_probe_prints_stays_out_of_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    manager(plugin("good", "chatting")).probe_devices()
    assert capsys.readouterr() == ("", "found nothing\n")


ROOT = "/sys/bus/pci/devices/0000:41:00.0"
ON_BUS = {f"{ROOT}/class": "0x030200", f"{ROOT}/vendor": "0x10de", f"{ROOT}/device": "0x20b2"}


@pytest.mark.parametrize(
    ("probe", "reason"),
    [
        ("hanging", "the probe did not answer in 0.05 s"),
        ("raising", "the probe failed: it raised KeyError: 'VRAM'"),
        ("unrecorded", "the probe asked for more than was recorded"),
    ],
)
@pytest.mark.parametrize("name", ["nvidia", "elsewhere"])
def test_a_probe_that_tells_nothing_leaves_what_the_bus_shows(name: str, probe: str, reason: str) -> None:
    driver = {f"{ROOT}/driver": "!link ../../../bus/pci/drivers/nvidia"}
    host = ReplayHost(Scene(facts=Facts(files=ON_BUS | driver)))
    bad = plugin(name, probe, pci_vendors=(0x10DE,))
    found = PortableDeviceManager(host, (bad,)).probe_devices(0.05 if probe == "hanging" else LONG_S)
    (device,) = found.devices
    assert (device.id, device.vendor, device.driver, device.usable) == ("0000:41:00.0", name, "nvidia", False)
    assert (device.verdict.code, device.verdict.reason) == ("unknown", reason)
    assert found.unknown["/0/memory/reported_bytes"] == reason
    assert len(found.findings) == 1


def test_a_probe_that_hangs_leaves_the_word_of_the_bus_that_a_device_cannot_be_used() -> None:
    host = ReplayHost(Scene(facts=Facts(files=ON_BUS)))
    found = PortableDeviceManager(host, (plugin("nvidia", "hanging", pci_vendors=(0x10DE,)),)).probe_devices(0.05)
    assert found.devices[0].verdict.code == "unusable"
    assert "no driver is bound to it" in found.devices[0].verdict.reason


@pytest.mark.parametrize(
    ("signs", "facts", "is_asked"),
    [
        (None, {}, True),
        ((), {}, False),
        ((), {"files": ON_BUS}, True),
        ((), {"files": ON_BUS | {f"{ROOT}/vendor": "0x1002"}}, False),
        (("/dev/good[0-9]*",), {"files": {"/dev/good3": "!chr 1:1"}}, True),
        (("/dev/good[0-9]*",), {"files": {"/dev/goodctl": "!chr 1:1"}}, False),
        (("plan9 mips",), {"platform": {"system": "plan9", "machine": "mips"}}, True),
        (("plan9 mips",), {"platform": {"system": "plan9", "machine": "x86_64"}}, False),
    ],
)
def test_a_probe_is_asked_where_its_plug_in_finds_a_sign(signs: Any, facts: dict[str, Any], is_asked: bool) -> None:
    host = ReplayHost(Scene(facts=Facts(**facts)))
    good = plugin("good", "two_cards", pci_vendors=(0x10DE,), signs=signs)
    assert bool(PortableDeviceManager(host, (good,)).probe_devices().devices) is is_asked


def test_a_probe_without_a_sign_is_not_even_imported() -> None:
    absent = VendorPlugin(
        api_version=API_VERSION, name="absent", device_types=("absent",), probe="nowhere:probe", signs=()
    )
    assert manager(absent).probe_devices().findings == ()


def test_a_recording_that_does_not_hold_the_bus_has_every_probe_asked() -> None:
    host = ReplayHost(Scene(facts=Facts(), complete=True))
    found = PortableDeviceManager(host, (plugin("good", "two_cards", signs=()),)).probe_devices()
    assert len(found.devices) == 2


def test_the_traceback_of_a_probe_is_evidence() -> None:
    (finding,) = manager(plugin("bad", "raising")).probe_devices().findings
    assert "in raising" in finding.evidence[0]


def test_a_refused_plug_in_is_a_finding_that_names_its_distribution() -> None:
    refused = RefusedPlugin(name="acme", distribution="acme-dist", id="PLG-03", reason="imports torch")
    (finding,) = PortableDeviceManager(HOST, (), (refused,)).findings()
    assert finding.cause == "The plug-in acme of acme-dist imports torch, which would slow every command."
    assert finding.fix[0].text == "update acme-dist, or leave it out"


def test_every_marker_of_our_rows_is_filled() -> None:
    for row in ROWS:
        refused = RefusedPlugin(name="acme", distribution="acme-dist", id=row, reason="is odd")
        (finding,) = PortableDeviceManager(HOST, (), (refused,)).findings()
        assert "<" not in f"{finding.cause} {finding.fix}"


def test_a_plug_in_answers_to_its_name_and_its_device_types() -> None:
    one, other = plugin("one", "two_cards"), plugin("other", "two_cards")
    both = manager(one, other)
    assert both.plugin_for("other") is other
    assert both.plugin_for("one_type") is one
    assert both.plugin_for("third") is None


def test_an_adapter_comes_with_its_device_set_and_closed() -> None:
    card = Device(id="null0", vendor="null", kind="gpu", adapter="null")
    adapter = manager(plugin("null", "two_cards", adapter="vllm_probe.vendors.null.adapter:NullAdapter")).adapter_for(
        card
    )
    assert isinstance(adapter, NullAdapter)
    assert adapter.device is card


def test_a_registered_adapter_goes_before_the_plug_ins_own() -> None:
    class Special(NullAdapter): ...

    both = manager(plugin("null", "two_cards", adapter="vllm_probe.vendors.null.adapter:NullAdapter"))
    both.register_adapter("null", Special)
    assert isinstance(both.adapter_for(Device(id="null0", vendor="null", kind="gpu", adapter="null")), Special)


def test_a_device_without_an_adapter_is_unavailable() -> None:
    for plugins in ((), (plugin("good", "two_cards"),)):
        with pytest.raises(DeviceUnavailable, match=r"nothing installed here runs 0000:03:00\.0"):
            manager(*plugins).adapter_for(Device(id="0000:03:00.0", vendor="good", kind="gpu"))


def test_an_adapter_that_cannot_be_imported_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Device(id="x", vendor="bad", kind="gpu")
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    both = manager(plugin("bad", "two_cards", adapter="torch:Adapter"))
    with pytest.raises(MissingExtra, match="the adapter bad needs torch"):
        both.adapter_for(card)
    with pytest.raises(PluginRefused, match="No module named 'pyopencl_nowhere'"):
        manager(plugin("bad", "two_cards", adapter="pyopencl_nowhere:Adapter")).adapter_for(card)
    with pytest.raises(PluginRefused, match="raised AttributeError"):
        manager(plugin("bad", "two_cards", adapter=f"{HERE}:Nothing")).adapter_for(card)


@pytest.mark.parametrize(
    ("kind", "details", "first"),
    [
        ("cpu", {}, "pip install torch --index-url https://download.pytorch.org/whl/cpu && "),
        ("gpu", {"stack": {"install": "pip install torch --index-url X"}}, "pip install torch --index-url X && "),
        ("gpu", {"stack": {"advice": "take a container"}}, ""),
        ("gpu", {}, ""),
    ],
)
def test_a_device_without_torch_is_offered_the_build_for_it_and_no_cuda_for_a_processor(
    monkeypatch: pytest.MonkeyPatch, kind: Kind, details: dict[str, Any], first: str
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    device = Device(id="x", vendor="bad", kind=kind, details=details)
    with pytest.raises(MissingExtra) as caught:
        manager(plugin("bad", "two_cards", adapter="torch:Adapter")).adapter_for(device)
    assert caught.value.hint == f"run `{first}{extra_command('runtime')}`"


def test_checks_that_cannot_be_imported_join_the_refused() -> None:
    both = manager(plugin("good", "two_cards", checks=f"{HERE}:CHECKS"), plugin("bad", "x", checks=f"{HERE}:NONE"))
    assert both.checks() == CHECKS
    assert [(refused.name, refused.distribution, refused.id) for refused in both.refused] == [
        ("bad", "bad-dist", "PLG-02")
    ]


def test_discovery_reads_the_variable_through_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_PROBE_PLUGINS", "null")
    found = PortableDeviceManager.discover(HOST)
    assert [plugin.name for plugin in found.plugins] == ["null"]
    assert [device.id for device in found.probe_devices().devices] == ["null0"]


def test_a_device_names_the_adapter_of_its_vendor_where_that_runs_its_kind() -> None:
    named = plugin("acme", "two_cards", adapter="acme:Adapter")
    found = manager(named).probe_devices()
    assert {device.adapter for device in found.devices} == {"acme"}
    assert not any(pointer.endswith("/adapter") for pointer in found.unknown)
    other = manager(replace(named, adapter_kinds=("npu",))).probe_devices()
    assert {device.adapter for device in other.devices} == {None}
