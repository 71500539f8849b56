"""What the probe says of recorded machines, and of devices that answer as drivers do."""

from types import SimpleNamespace
from typing import Any

import pyopencl as cl
import pytest

from vllm_probe.core import codec
from vllm_probe.core.device import Device
from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.scene import Facts, Scene
from vllm_probe.detect.select import default_device
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.cpu.probe import probe as cpu_probe
from vllm_probe_opencl.devices import describe
from vllm_probe_opencl.linear import group_widths
from vllm_probe_opencl.probe import LISTING, parse, probe

DRIVER = {"/etc/OpenCL/vendors/pocl.icd": "libpocl.so.2\n"}
CPUINFO = "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: sse4_2 avx avx2\n"
ANSWERS: dict[str, Any] = {
    "type": cl.device_type.CPU,
    "name": "pthread-skylake-avx512-AMD EPYC",
    "platform": SimpleNamespace(name="Portable Computing Language"),
    "version": "OpenCL 3.0 PoCL HSTR: pthread-x86_64-pc-linux-gnu-skylake-avx512",
    "driver_version": "3.1",
    "extensions": "cl_khr_fp64",
    "available": 1,
    "compiler_available": 1,
    "svm_capabilities": 11,
    "host_unified_memory": 1,
    "global_mem_size": 1 << 34,
    "global_mem_cache_size": 1 << 25,
    "max_work_group_size": 4096,
    "max_compute_units": 2,
    "max_clock_frequency": 2596,
}


def device(**answers: Any) -> Device:
    return describe(0, SimpleNamespace(**ANSWERS | answers))


def found(output: str | None) -> ProbeResult:
    commands = {} if output is None else {" ".join(LISTING): output}
    return probe(ReplayHost(Scene(facts=Facts(files=DRIVER, commands=commands))))


def test_a_machine_without_a_driver_is_told_which_to_install() -> None:
    result = probe(ReplayHost(Scene(facts=Facts())))
    assert (result.devices, [finding.id for finding in result.findings]) == ((), ["OCL-01"])
    assert result.findings[0].fix[0].command == "apt-get install -y pocl-opencl-icd"


@pytest.mark.parametrize(
    ("output", "finding", "cause"),
    [
        ("!rc=1\nTraceback\nModuleNotFoundError: No module named 'pyopencl'\n", "OCL-03", "No module named 'pyopencl'"),
        ("!rc=-11\n", "OCL-03", "crashed with signal 11"),
        ("!timeout\n", "OCL-03", "no answer in 8 s"),
        ("[]", "OCL-03", "no description of devices"),
        (None, "OCL-03", "cannot be started"),
        ("{}", "OCL-02", "none of them offers a device"),
    ],
)
def test_what_stands_against_listing_the_devices_is_said(output: str | None, finding: str, cause: str) -> None:
    result = found(output)
    assert (result.devices, [found.id for found in result.findings]) == ((), [finding])
    assert cause in result.findings[0].cause


def test_what_the_child_describes_is_found() -> None:
    described = ProbeResult(devices=(device(),), unknown={"/0/memory/used_bytes": "not told"})
    assert found(codec.dumps(described)) == described


def test_a_device_says_what_it_is() -> None:
    cpu, amd = device(), device(type=cl.device_type.GPU, name="gfx1100", host_unified_memory=0)
    nvidia = device(
        extensions="cl_nv_device_attribute_query", compute_capability_major_nv=9, compute_capability_minor_nv=0
    )
    assert (cpu.id, cpu.kind, cpu.arch, cpu.memory.kind) == ("opencl:0", "cpu", "skylake-avx512", "shared")
    assert (amd.kind, amd.arch, amd.memory.kind) == ("gpu", "gfx1100", "dedicated")
    assert nvidia.arch == "sm_90"
    assert device(type=cl.device_type.GPU).kind == "igpu"
    assert device(type=cl.device_type.ACCELERATOR).kind == "npu"
    assert device(version="OpenCL 3.0").arch is None


@pytest.mark.parametrize(
    ("answer", "reason"), [("available", "is not available"), ("compiler_available", "no compiler")]
)
def test_a_device_that_cannot_run_kernels_is_unusable(answer: str, reason: str) -> None:
    refused = device(**{answer: 0})
    assert (refused.usable, refused.verdict.code) == (False, "unusable")
    assert reason in refused.verdict.reason


def test_the_processors_are_taken_directly_before_they_are_taken_through_opencl() -> None:
    cpu = cpu_probe(ReplayHost(Scene(facts=Facts(files={"/proc/cpuinfo": CPUINFO})))).devices[0]
    assert default_device((device(), cpu)) == cpu


def test_groups_are_as_wide_as_the_device_can_launch_them() -> None:
    chooses = device(extensions="cl_intel_required_subgroup_size", sub_group_sizes_intel=[32, 8, 16])
    assert group_widths(device(), "vector") == (1, 2, 4, 8, 16)
    assert group_widths(device(max_work_group_size=32), "local") == (4, 8, 16, 32)
    assert group_widths(chooses, "local") == (8, 16, 32)


@pytest.mark.parametrize("text", ["", "[" * 100_000, "[]", '{"devices": [1]}', '{"devices": [{"kind": "tpu"}]}'])
def test_other_texts_describe_no_devices(text: str) -> None:
    assert parse(text) is None
