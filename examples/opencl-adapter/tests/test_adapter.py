"""The adapter on a real OpenCL device: PoCL in CI."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyopencl as cl
import pytest

from vllm_probe.core.errors import DeviceUnavailable
from vllm_probe.core.primitive import Primitive
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.conformance import gate
from vllm_probe.vendors.conformance.suite import Result, run_suite
from vllm_probe.vendors.descriptors import load_capability, search_path
from vllm_probe.vendors.registry import PortableDeviceManager
from vllm_probe_opencl.adapter import OpenClAdapter
from vllm_probe_opencl.probe import probe

HOST = LocalHost()
DEVICES = probe(HOST).devices
pytestmark = pytest.mark.skipif(
    not DEVICES and not os.environ.get("REQUIRE_ALL"), reason="no OpenCL device: apt-get install -y pocl-opencl-icd"
)


def opened(**details: Any) -> OpenClAdapter:
    adapter = OpenClAdapter(HOST)
    adapter.set_device(replace(DEVICES[0], details=DEVICES[0].details | details))
    adapter.open()
    return adapter


@pytest.fixture
def adapter() -> Iterator[OpenClAdapter]:
    adapter = opened()
    yield adapter
    adapter.close()


def probe_command(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vllm_probe", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=110, env=os.environ | env)


def failures(results: tuple[Result, ...]) -> dict[str, str]:
    return {result.name: result.reason for result in results if result.ok is False}


@pytest.mark.parametrize(
    "change",
    [
        lambda device: device,
        lambda device: replace(device, details=device.details | {"svm": False}),
        lambda device: replace(device, kind="gpu"),
    ],
    ids=["as it is", "with buffers", "in groups of many lanes"],
)
def test_the_conformance_suite_passes(change: Any) -> None:
    results = run_suite(lambda: OpenClAdapter(HOST), change(DEVICES[0]))
    assert failures(results) == {}
    assert {result.name for result in results if result.ok} > {"linear: fp32 vector", "rope: fp32 kernel"}


WRONG = """
from dataclasses import replace
from vllm_probe_opencl import PLUGIN as OPENCL
import vllm_probe_opencl.probe as opencl
from vllm_probe_opencl.adapter import OpenClAdapter

class WrongRope(OpenClAdapter):
    def _rope(self, heads, cosines, sines, implementation):
        return super()._rope(heads, sines, cosines, implementation)

def probe(host):
    found = opencl.probe(host)
    return replace(found, devices=tuple(replace(device, vendor="wrong") for device in found.devices))

PLUGIN = replace(OPENCL, name="wrong", device_types=("wrong",), probe="wrong:probe", adapter="wrong:WrongRope")
"""


def test_a_plug_in_with_one_wrong_kernel_fails_its_check_by_name(tmp_path: Path) -> None:
    info = tmp_path / "wrong-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wrong\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[vllm_probe.vendors]\nwrong = wrong:PLUGIN\n")
    (tmp_path / "wrong.py").write_text(WRONG)
    done = probe_command("adapter", "check", "wrong", "--json", PYTHONPATH=str(tmp_path), VLLM_PROBE_PLUGINS="wrong")
    assert done.returncode == 1
    results = json.loads(done.stdout)["results"]
    assert [result["name"] for result in results if result["ok"] is False] == ["rope: fp32 kernel", "rope: fp16 kernel"]


def test_shared_virtual_memory_has_one_address_on_host_and_device(adapter: OpenClAdapter) -> None:
    tensor = adapter.from_host([1.0, 2.0, 3.0], "fp32")
    address = adapter.address(tensor)
    assert address == tensor.memory.svm_ptr
    without = opened(svm=False)
    assert without.address(without.allocate(64)) is None
    without.close()


@pytest.mark.parametrize("svm", [True, False])
def test_only_what_lies_at_the_places_is_fetched(svm: bool) -> None:
    adapter = opened(svm=svm)
    for dtype, values in (("fp32", [[[1.5, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]]), ("int8", [[1, -2], [3, 4]])):
        tensor = adapter.from_host(values, dtype)
        assert adapter.at(tensor, [(1,), (0, 1), (1, 0)]) == [values[1], values[0][1], values[1][0]]
    pinned = adapter.allocate_pinned(4)
    adapter.copy(adapter.from_host([1, 2, 3, 4], "int8"), pinned).wait()
    assert adapter.at(pinned, [(2,), (0,)]) == [3, 1]
    adapter.close()


def test_an_alignment_that_no_allocation_has_room_for_is_too_much_memory(adapter: OpenClAdapter) -> None:
    with pytest.raises(MemoryError):
        adapter.allocate(100, 1 << 40)


def test_a_kernel_that_does_not_compile_says_why(
    adapter: OpenClAdapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "format.cl").write_text("")
    (tmp_path / "bad.cl").write_text("__kernel void bad() { nonesuch = 1; }\n")
    monkeypatch.setattr("vllm_probe_opencl.kernels.files", lambda _: tmp_path)
    with pytest.raises(RuntimeError, match=r"^bad.bad in fp32 does not compile: .*error: .*nonesuch"):
        adapter._kernels.run("bad.bad", "fp32", (1,), 1)


@pytest.mark.parametrize("implementation", ["vector", "local"])
@pytest.mark.parametrize(("many", "first"), [(32, "[33, 130] x [65, 130]^T"), (512, "[1031, 16] x [8, 16]^T")])
def test_a_kernel_that_forgets_the_last_row_of_many_fails_the_gate(
    adapter: OpenClAdapter, implementation: str, many: int, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for source in files("vllm_probe_opencl.kernels").iterdir():
        if source.name.endswith(".cl"):
            text, wrong = source.read_text("utf-8"), f"min(ROWS, m - row - (m > {many} && row + ROWS >= m))"
            (tmp_path / source.name).write_text(text.replace("min(ROWS, m - row)", wrong))
    monkeypatch.setattr("vllm_probe_opencl.kernels.files", lambda _: tmp_path)
    assert (gate(adapter, Primitive.LINEAR, "fp32", implementation) or "").startswith(f"{first}: ")


def test_pinned_memory_goes_back_to_the_driver(adapter: OpenClAdapter) -> None:
    pinned = adapter.allocate_pinned(1 << 20, 4096)
    assert isinstance(pinned.owner._buffer, cl.Buffer)
    adapter.release(pinned)
    with pytest.raises(cl.LogicError, match=r"(?i)free|release|invalid"):
        pinned.owner._buffer.release()


def test_a_cpu_prefers_vectors_and_a_gpu_local_memory(adapter: OpenClAdapter) -> None:
    gpu = OpenClAdapter(HOST)
    gpu.set_device(replace(DEVICES[0], kind="gpu"))
    assert adapter.implementations(Primitive.LINEAR, "fp32") == ("vector", "local")
    assert gpu.implementations(Primitive.LINEAR, "fp32") == ("local", "vector")
    assert adapter.implementations(Primitive.LINEAR, "bf16") == ()
    assert adapter.supports(Primitive.LINEAR, "fp16").reason == "fp16 is computed in fp32"


def test_a_device_that_has_gone_is_refused() -> None:
    adapter = OpenClAdapter(HOST)
    adapter.set_device(replace(DEVICES[0], indices={"opencl": 99}))
    with pytest.raises(DeviceUnavailable):
        adapter.open()


def test_every_byte_is_read_whatever_the_size(adapter: OpenClAdapter) -> None:
    for count in (1, 15, 16, 17, 1000, 70_001):
        values = [1.0] * count
        assert adapter.to_host(adapter.read(adapter.from_host(values, "fp32"))) == [count]
        assert adapter.to_host(adapter.read(adapter.from_host(values, "int8"))) == [count]


def test_bench_writes_a_document_that_validates(tmp_path: Path) -> None:
    document = tmp_path / "opencl.json"
    options = ("--device", "opencl:0", "--quick", "--only", "gemm,memory", "--emit", str(document))
    assert probe_command("bench", *options, XDG_STATE_HOME=str(tmp_path / "state")).returncode == 0
    made = load_capability(document)
    assert (made.device_type, made.device.id, made.device.torch) == ("opencl", "opencl:0", None)
    assert made.compute_units["fp32"].throughput_gflops
    assert made.memory.read_gb_s


def test_the_wheel_brings_a_descriptor_that_validates() -> None:
    places = search_path(PortableDeviceManager.discover(HOST), "none")
    folder = next(place.path for place in places if place.name == "plug-in opencl")
    described = load_capability(folder / "pocl-epyc-2-cores.capability.json")
    assert (described.device_type, described.device.driver) == ("opencl", "Portable Computing Language 3.1+debian")
    assert described.compute_units["fp32"].throughput_gflops


def test_the_device_states_its_units_and_the_lanes_that_run_together(adapter: OpenClAdapter) -> None:
    device = cl.get_platforms()[0].get_devices()[0]
    assert adapter.num_units == device.max_compute_units
    assert adapter.native_group_width == device.native_vector_width_float  # PoCL's device is a processor
    as_gpu = OpenClAdapter(HOST)
    as_gpu.set_device(replace(DEVICES[0], kind="gpu", details=DEVICES[0].details | {"sub_group_lanes": [8, 16]}))
    as_gpu.open()
    assert as_gpu.native_group_width
    assert as_gpu.supported_group_widths == (8, 16)
    as_gpu.close()
