"""A machine with cards of four vendors: what breaks of one never hides another, at any layer, and nothing is woken."""

import threading
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.vendors.mixed import CARDS, WatchedHost, mixed_facts, mixed_host
from vllm_probe.core import codec
from vllm_probe.core.device import Device
from vllm_probe.core.errors import LibraryTimeout, LibraryUnavailable
from vllm_probe.core.plugin import ProbeResult, VendorPlugin
from vllm_probe.core.scene import Scene
from vllm_probe.core.system import CommandResult, Host
from vllm_probe.core.values import JsonValue
from vllm_probe.vendors.plugins import discover_plugins
from vllm_probe.vendors.registry import PortableDeviceManager

PLUGINS = discover_plugins(None).plugins
LIBRARIES = {
    "nvidia": ("libcuda.so.1", "libnvidia-ml.so.1"),
    "ascend": ("libascendcl.so", "libdcmi.so"),
    "amd": ("libhsa-runtime64.so.1", "libamd_smi.so"),
    "intel": ("libze_loader.so.1",),
}
TOOLS = {"nvidia": ("nvidia-smi",), "ascend": ("npu-smi",), "amd": ("amd-smi", "rocm-smi"), "intel": ("xpu-smi",)}
vendors = pytest.mark.parametrize("vendor", CARDS)
never = threading.Event()
meeting = threading.Barrier(2, timeout=60)


def raising(host: Host) -> ProbeResult:
    raise RuntimeError("broken")


def hanging(host: Host) -> ProbeResult:
    never.wait()
    return ProbeResult()


def meeting_others(host: Host) -> ProbeResult:
    meeting.wait()
    return ProbeResult()


def probed(host: Host, plugins: Sequence[VendorPlugin] = PLUGINS, timeout_s: float = 60) -> ProbeResult:
    return PortableDeviceManager(host, plugins).probe_devices(timeout_s)


def of_others(found: ProbeResult, vendor: str) -> list[Device]:
    return [device for device in found.devices if device.vendor != vendor]


def of(found: ProbeResult, vendor: str) -> dict[str, Device]:
    return {device.id: device for device in found.devices if device.vendor == vendor}


@pytest.fixture(scope="module")
def whole() -> ProbeResult:
    """What the machine shows while everything works."""
    found = probed(mixed_host())
    assert found.findings == ()
    assert {vendor: tuple(of(found, vendor)) for vendor in CARDS} == CARDS
    assert all(device.usable for device in found.devices)
    return found


class Faulty(WatchedHost):
    """A machine on which one vendor's library calls and tools fail, each in its way."""

    vendor = ""
    fault = ""

    def isolated(self, function: str, timeout_s: float) -> JsonValue:
        if f".{self.vendor}." not in function:
            return super().isolated(function, timeout_s)
        self.asked.append(("isolated", function, timeout_s))
        if self.fault == "hangs":
            raise LibraryTimeout(f"{function} did not return within {timeout_s:g} s", hint="see dmesg")
        raise LibraryUnavailable(f"{function} was killed by signal 11", hint="see dmesg")

    def which(self, program: str) -> str | None:
        return f"/usr/bin/{program}" if program in TOOLS[self.vendor] else super().which(program)

    def run(self, argv: Sequence[str], timeout_s: float, env: Any = None) -> CommandResult:
        if argv[0].rpartition("/")[2] not in TOOLS[self.vendor]:
            return super().run(argv, timeout_s, env)
        self.asked.append(("run", " ".join(argv), timeout_s))
        if self.fault == "hangs":
            return CommandResult(status="timeout")
        return CommandResult(status="exited", returncode=-11, stdout="", stderr="Segmentation fault")


def faulty(vendor: str, fault: str) -> Faulty:
    host = Faulty(codec.from_json(Scene, {"facts": mixed_facts()}))
    host.vendor, host.fault = vendor, fault
    return host


@vendors
@pytest.mark.parametrize("fault", ["missing", "fails", "has no functions"])
def test_a_library_that_fails_costs_its_own_vendor_a_verdict_and_nobody_a_device(
    vendor: str, fault: str, whole: ProbeResult
) -> None:
    facts = mixed_facts()
    for name in LIBRARIES[vendor]:
        library = facts["libs"][name]
        calls = {"missing": None, "fails": dict.fromkeys(library["calls"], 999), "has no functions": {}}[fault]
        facts["libs"][name] = None if calls is None else {**library, "calls": calls}
    found = probed(mixed_host(facts))
    assert of_others(found, vendor) == of_others(whole, vendor)
    assert tuple(of(found, vendor)) == CARDS[vendor]
    assert found.findings == ()


@vendors
@pytest.mark.parametrize("fault", ["hangs", "crashes"])
def test_libraries_and_tools_that_hang_or_crash_leave_what_the_bus_shows(
    vendor: str, fault: str, whole: ProbeResult
) -> None:
    host = faulty(vendor, fault)
    found = probed(host)
    assert of_others(found, vendor) == of_others(whole, vendor)
    assert tuple(of(found, vendor)) == CARDS[vendor]
    assert all(device.name and device.driver for device in of(found, vendor).values())
    assert not any(device.usable for device in of(found, vendor).values())
    assert all(device.verdict.code != "unknown" or "not" in device.verdict.reason for device in found.devices)
    assert any(kind == "isolated" and f".{vendor}." in asked for kind, asked, _ in host.asked)


@vendors
def test_everything_of_a_vendor_that_hangs_ends_before_its_probe_would_be_given_up(vendor: str) -> None:
    host = faulty(vendor, "hangs")
    probed(host)
    libraries = [limit for kind, asked, limit in host.asked if kind == "isolated" and f".{vendor}." in asked]
    tools = [limit for kind, asked, limit in host.asked if kind == "run" and asked.startswith(TOOLS[vendor])]
    assert max(libraries) + sum(tools) < 10


def with_probe(vendor: str, probe: str) -> list[VendorPlugin]:
    return [replace(plugin, probe=f"{__name__}:{probe}") if plugin.name == vendor else plugin for plugin in PLUGINS]


@vendors
def test_a_probe_that_raises_costs_its_own_devices_only(vendor: str, whole: ProbeResult) -> None:
    found = probed(mixed_host(), with_probe(vendor, "raising"))
    assert [finding.id for finding in found.findings] == ["PLG-05"]
    assert of_others(found, vendor) == of_others(whole, vendor)


def test_a_probe_that_hangs_costs_its_own_devices_only(whole: ProbeResult) -> None:
    found = probed(mixed_host(), with_probe("nvidia", "hanging"), timeout_s=2)
    assert [finding.id for finding in found.findings] == ["PLG-06"]
    assert of_others(found, "nvidia") == of_others(whole, "nvidia")


@vendors
@pytest.mark.parametrize("fault", ["unbound", "unreadable"])
def test_a_card_that_is_broken_on_the_bus_hides_no_other(vendor: str, fault: str, whole: ProbeResult) -> None:
    facts, broken = mixed_facts(), CARDS[vendor][0]
    folder = f"/sys/bus/pci/devices/{broken}"
    if fault == "unbound":
        del facts["files"][f"{folder}/driver"]
    else:
        facts["files"] |= dict.fromkeys((f"{folder}/vendor", f"{folder}/device"), "0xnonsense\n")
    found = probed(mixed_host(facts))
    assert of_others(found, vendor) == of_others(whole, vendor)
    assert set(CARDS[vendor]) - {broken} <= set(of(found, vendor))
    assert found.findings == ()
    if fault == "unbound":
        assert not of(found, vendor)[broken].usable


def test_vendors_are_asked_at_the_same_time() -> None:
    plugins = [
        VendorPlugin(api_version=1, name=name, device_types=(name,), probe=f"{__name__}:meeting_others")
        for name in ("one", "two")
    ]
    assert probed(mixed_host(), plugins).findings == ()


@vendors
def test_nothing_is_asked_that_would_wake_a_card_and_the_others_are_asked_all_the_same(
    vendor: str, whole: ProbeResult
) -> None:
    facts = mixed_facts()
    facts["files"] |= {f"/sys/bus/pci/devices/{card}/power_state": "D3cold\n" for card in CARDS[vendor]}
    host = mixed_host(deepcopy(facts))
    found = probed(host)
    nodes = {fact["path"] for device in of(whole, vendor).values() for fact in device.details["nodes"]}
    own = [
        (kind, asked)
        for kind, asked, _ in host.asked
        if (kind == "isolated" and f".{vendor}." in asked)
        or (kind == "run" and asked.startswith(TOOLS[vendor]))
        or (kind in {"ioctl", "open"} and asked in nodes)
    ]
    assert own == []
    assert of_others(found, vendor) == of_others(whole, vendor)
    assert tuple(of(found, vendor)) == CARDS[vendor]
    assert all("sleep" in device.verdict.reason for device in of(found, vendor).values())
