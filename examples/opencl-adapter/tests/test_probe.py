"""What the probe says of recorded machines; no OpenCL is needed."""

import json
from typing import Any

import pytest

from vllm_probe.core.device import Device
from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.scene import Facts, Scene
from vllm_probe.detect.select import default_device
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.cpu.probe import probe as cpu_probe
from vllm_probe_opencl.linear import group_widths
from vllm_probe_opencl.probe import LISTING, parse_listing, probe

DRIVER = {"/etc/OpenCL/vendors/pocl.icd": "libpocl.so.2\n"}
CPUINFO = "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: sse4_2 avx avx2\n"
FACTS: dict[str, Any] = {
    "kind": "cpu",
    "name": "a CPU",
    "arch": "skylake-avx512",
    "platform": "Portable Computing Language",
    "version": "OpenCL 3.0",
    "driver": "3.1",
    "available": True,
    "compiles": True,
    "svm": True,
    "shares_memory": True,
    "memory_bytes": 1 << 34,
    "cache_bytes": 1 << 25,
    "group_lanes": 4096,
    "sub_group_lanes": [],
    "compute_units": 2,
    "clock_mhz": 2596,
}


def found(output: str | None = None, **files: str) -> ProbeResult:
    commands = {} if output is None else {" ".join(LISTING): output}
    return probe(ReplayHost(Scene(facts=Facts(files=DRIVER | files, commands=commands))))


def listing(*changes: dict[str, Any]) -> str:
    return json.dumps({"devices": [FACTS | change for change in changes]})


def device(**changes: Any) -> Device:
    return found(listing(changes)).devices[0]


def test_a_machine_without_a_driver_is_told_which_to_install() -> None:
    result = probe(ReplayHost(Scene(facts=Facts())))
    assert (result.devices, [finding.id for finding in result.findings]) == ((), ["OCL-01"])
    assert result.findings[0].fix[0].command == "apt-get install -y pocl-opencl-icd"


@pytest.mark.parametrize(
    ("output", "finding", "cause"),
    [
        ("!rc=1\nTraceback\nModuleNotFoundError: No module named 'pyopencl'\n", "OCL-03", "No module named 'pyopencl'"),
        ("!rc=-11\n", "OCL-03", "crashed with signal 11"),
        ("{}", "OCL-03", "not a listing"),
        (None, "OCL-03", "cannot be started"),
        ('{"devices": []}', "OCL-02", "none of them offers a device"),
    ],
)
def test_what_stands_against_listing_the_devices_is_said(output: str | None, finding: str, cause: str) -> None:
    result = found(output)
    assert (result.devices, [found.id for found in result.findings]) == ((), [finding])
    assert cause in result.findings[0].cause


def test_every_device_of_every_platform_has_a_number() -> None:
    result = found(listing({"kind": "gpu", "shares_memory": False}, {"kind": "igpu"}, {"arch": None}))
    assert [(d.id, d.kind, d.memory.kind, d.indices) for d in result.devices] == [
        ("opencl:0", "gpu", "dedicated", {"opencl": 0}),
        ("opencl:1", "igpu", "shared", {"opencl": 1}),
        ("opencl:2", "cpu", "shared", {"opencl": 2}),
    ]
    assert result.devices[0].memory.usable_bytes is None
    assert result.unknown["/0/memory/usable_bytes"] == "OpenCL does not tell what is free"
    assert ("/0/arch" in result.unknown, "/2/arch" in result.unknown) == (False, True)


@pytest.mark.parametrize(("change", "reason"), [("available", "is not available"), ("compiles", "no compiler")])
def test_a_device_that_cannot_run_kernels_is_unusable(change: str, reason: str) -> None:
    refused = device(**{change: False})
    assert (refused.usable, refused.verdict.code) == (False, "unusable")
    assert reason in refused.verdict.reason


def test_the_processors_are_taken_directly_before_they_are_taken_through_opencl() -> None:
    cpu = cpu_probe(ReplayHost(Scene(facts=Facts(files={"/proc/cpuinfo": CPUINFO})))).devices[0]
    assert default_device((device(), cpu)) == cpu


def test_groups_are_as_wide_as_the_device_can_launch_them() -> None:
    assert group_widths(device(), "vector") == (1, 2, 4, 8, 16)
    assert group_widths(device(group_lanes=64), "local") == (8, 16, 32, 64)
    assert group_widths(device(sub_group_lanes=[8, 16, 32]), "local") == (8, 16, 32)


@pytest.mark.parametrize("text", ["", "[" * 100_000, "[]", '{"devices": [1]}', '{"devices": [{"kind": "tpu"}]}'])
def test_other_texts_are_no_listings(text: str) -> None:
    assert parse_listing(text) is None
