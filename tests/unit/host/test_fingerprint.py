"""The same hardware has the same fingerprint, other hardware another, and nothing personal counts."""

import re
from typing import Any

import pytest

from vllm_probe.core.scene import Facts, Scene
from vllm_probe.host.fingerprint import host_fingerprint, make_stamp
from vllm_probe.host.replay import ReplayHost

FILES = {
    "/proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD EPYC 7543P\n\nprocessor\t: 1\nmodel name\t: AMD EPYC 7543P\n",
    "/proc/meminfo": "MemTotal: 16000000 kB\n",
    "/sys/bus/pci/devices/0000:03:00.0/class": "0x030000\n",
    "/sys/bus/pci/devices/0000:03:00.0/vendor": "0x1002\n",
    "/sys/bus/pci/devices/0000:03:00.0/device": "0x744c\n",
}


def fingerprint(files: dict[str, str], **facts: Any) -> str:
    return host_fingerprint(ReplayHost(Scene(facts=Facts(files=FILES | files, **facts))))


@pytest.mark.parametrize(
    "files",
    [
        {"/proc/meminfo": "MemTotal: 16100000 kB\n"},
        {"/proc/sys/kernel/hostname": "kestrel"},
        {"/proc/self/status": "Cpus_allowed_list: 0\n"},
        {"/sys/bus/pci/devices/0000:00:1f.0/class": "0x060100\n"},
    ],
)
def test_it_stays_when_only_a_name_a_limit_or_a_bridge_changes(files: dict[str, str]) -> None:
    assert fingerprint(files) == fingerprint({})


@pytest.mark.parametrize(
    "files",
    [
        {"/proc/meminfo": "MemTotal: 33000000 kB\n"},
        {"/proc/cpuinfo": "processor : 0\nmodel name : AMD EPYC 7543P\n"},
        {"/proc/cpuinfo": FILES["/proc/cpuinfo"].replace("7543P", "9654")},
        {"/sys/bus/pci/devices/0000:03:00.0/device": "0x7448\n"},
        {"/sys/bus/pci/devices/0000:c1:00.0/class": "0x120000\n"},
    ],
)
def test_it_changes_with_the_hardware(files: dict[str, str]) -> None:
    assert fingerprint(files) != fingerprint({})


def test_other_systems_name_their_processor() -> None:
    mac = {"sysctl -n machdep.cpu.brand_string": "Apple M4\n"}
    system = {"system": "darwin", "machine": "aarch64"}
    bare = Facts(commands=mac, platform=system)
    assert host_fingerprint(ReplayHost(Scene(facts=bare))) != host_fingerprint(
        ReplayHost(Scene(facts=Facts(platform=system)))
    )
    windows = Facts(env={"PROCESSOR_IDENTIFIER": "Intel64 Family 6"})
    assert host_fingerprint(ReplayHost(Scene(facts=windows))) != host_fingerprint(ReplayHost(Scene(facts=Facts())))


def test_a_stamp_is_made_at_the_hosts_time() -> None:
    stamp = make_stamp(ReplayHost(Scene(facts=Facts())))
    assert stamp.created_at == "2026-01-01T00:00:00Z"
    assert re.fullmatch(r"sha256:[0-9a-f]{16}", stamp.host_fingerprint)
    assert stamp.tool_version
