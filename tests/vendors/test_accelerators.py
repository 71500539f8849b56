"""The adapters of GPUs and NPUs over a stand-in for torch's module of the device; no accelerator is needed."""

from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.vendors.backend import FakeBackend
from vllm_probe.core.device import Device
from vllm_probe.core.errors import DeviceUnavailable, MissingExtra
from vllm_probe.core.primitive import CompileHints, Primitive
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.amd.adapter import AmdAdapter
from vllm_probe.vendors.ascend.adapter import AscendAdapter
from vllm_probe.vendors.intel.adapter import IntelAdapter
from vllm_probe.vendors.nvidia.adapter import NvidiaAdapter
from vllm_probe.vendors.torchbase import AcceleratorAdapter

HOST = LocalHost()
HERE, THERE = (0, 3, 0), (0, 0x41, 0)


def fake(kind: type[AcceleratorAdapter], backend: FakeBackend, **facts: Any) -> AcceleratorAdapter:
    """An adapter that reaches `backend` and keeps its tensors on the CPU."""

    class OnCpu(kind):  # type: ignore[misc, valid-type]  # a class that a test names
        torch_device = "cpu"

        def _import(self) -> str:
            return "2.7"

    adapter: AcceleratorAdapter = OnCpu(HOST)
    adapter.backend = backend
    adapter.set_device(Device(**({"id": "0000:03:00.0", "vendor": "acme", "kind": "gpu"} | facts)))
    return adapter


def opened(kind: type[AcceleratorAdapter] = NvidiaAdapter, backend: FakeBackend | None = None, **facts: Any) -> Any:
    adapter = fake(kind, backend or FakeBackend(), **facts)
    adapter.open()
    return adapter


@pytest.mark.parametrize(
    ("addresses", "facts", "index"),
    [
        ([THERE, HERE], {}, 1),
        ([THERE, HERE], {"indices": {"cuda": 0}}, 1),
        ([None, None, None], {"indices": {"cuda": 2, "nvml": 1}}, 2),
        ([HERE, HERE], {"id": "0000:03:00.0/mig-3.0", "indices": {"cuda": 1}}, 1),
        ([HERE], {"id": "0000:03:00.0/mig-3.0"}, 0),
        ([None], {}, 0),
        ([HERE], {"id": "dxg:0"}, 0),
    ],
)
def test_a_device_is_found_by_its_address_and_else_by_its_number(
    addresses: list[tuple[int, int, int] | None], facts: dict[str, Any], index: int
) -> None:
    backend = FakeBackend(addresses=addresses)
    adapter = opened(backend=backend, **facts)
    assert backend.index == index
    assert adapter.memory().total_bytes == 100 + index
    assert adapter.memory().free_bytes == 60


@pytest.mark.parametrize(
    ("addresses", "facts"),
    [([], {}), ([THERE], {}), ([None, None], {}), ([HERE, HERE], {}), ([None, None], {"indices": {"cuda": 2}})],
)
def test_a_device_that_torch_does_not_see_is_said(
    addresses: list[tuple[int, int, int] | None], facts: dict[str, Any]
) -> None:
    with pytest.raises(DeviceUnavailable, match=r"torch does not see 0000:03:00\.0"):
        opened(backend=FakeBackend(addresses=addresses), **facts)


def test_what_torch_says_of_a_context_that_fails_is_kept() -> None:
    with pytest.raises(DeviceUnavailable, match=r"0000:03:00.0: CUDA error: busy$"):
        opened(backend=FakeBackend(broken="CUDA error: busy\nmore"))


def test_opening_computes_fp32_as_fp32_and_closing_gives_the_precision_back() -> None:
    torch.set_float32_matmul_precision("high")
    try:
        adapter = opened()
        assert torch.get_float32_matmul_precision() == "highest"
        adapter.close()
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_a_batch_is_timed_between_two_events_behind_a_gate() -> None:
    backend = FakeBackend()
    adapter = opened(backend=backend)

    def call() -> None:
        backend.clock_s += 0.25

    assert adapter.time_batch([call] * 4) == pytest.approx(1.0)  # the gate takes another second
    assert backend.log[-3:] == ["record in main", "record in main", "wait"]


def test_a_gate_that_opened_early_is_longer_the_next_time_and_never_endless() -> None:
    backend = FakeBackend(gate_is_short=True)
    adapter = opened(backend=backend)
    for _ in range(12):
        adapter.time_batch([])
    assert backend.held[:3] == [1 << 20, 1 << 21, 1 << 22]
    assert backend.held[-1] == 1 << 27
    backend.gate_is_short = False
    adapter.time_batch([])
    adapter.time_batch([])
    assert backend.held[-1] == 1 << 27


def test_a_backend_without_a_gate_is_timed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(FakeBackend, "_sleep")
    assert opened(IntelAdapter).time_batch([]) == 0


def test_a_copy_in_a_queue_waits_for_what_is_queued_and_tells_its_end() -> None:
    backend = FakeBackend()
    adapter = opened(backend=backend)
    source, target = adapter.random((64,), "fp32", 1), torch.zeros(64)
    event = adapter.copy(source, target, non_blocking=True, queue=3)
    event.wait()
    assert backend.log == ["synchronize 0", "copy on 0 waits for main", "record in copy on 0", "wait"]
    assert torch.equal(source, target)
    adapter.copy(torch.zeros(64), target).wait()
    assert not target.any()
    assert backend.log[-1] == "wait"


def test_a_fence_waits_for_the_right_device() -> None:
    backend = FakeBackend(addresses=[THERE, HERE])
    opened(backend=backend).fence("workgroup")
    assert backend.log[-1] == "synchronize 1"


@pytest.mark.parametrize(
    ("kind", "arch", "formats"),
    [
        (NvidiaAdapter, "sm_120", {"fp32", "fp16", "bf16", "tf32", "int8", "fp8_e4m3"}),
        (NvidiaAdapter, "sm_86", {"fp32", "fp16", "bf16", "tf32", "int8"}),
        (NvidiaAdapter, "sm_75", {"fp32", "fp16", "int8"}),
        (NvidiaAdapter, None, {"fp32", "fp16"}),
        (AmdAdapter, "gfx942", {"fp32", "fp16", "bf16", "int8", "fp8_e4m3"}),
        (AmdAdapter, "gfx1201", {"fp32", "fp16", "bf16", "int8", "fp8_e4m3"}),
        (AmdAdapter, "gfx1100", {"fp32", "fp16", "bf16", "int8"}),
        (AmdAdapter, "gfx1030", {"fp32", "fp16"}),
        (IntelAdapter, None, {"fp32", "fp16", "bf16", "int8", "fp8_e4m3"}),
        (AscendAdapter, "910b", {"fp32", "fp16", "bf16"}),
        (AscendAdapter, "310p", {"fp32", "fp16"}),
    ],
)
def test_formats_follow_the_architecture(kind: type[AcceleratorAdapter], arch: str | None, formats: set[str]) -> None:
    adapter = fake(kind, FakeBackend(), arch=arch)
    words = ("fp32", "tf32", "bf16", "fp16", "fp8_e4m3", "int8", "int4")
    assert {word for word in words if adapter.implementations(Primitive.LINEAR, word)} == formats
    refused = next(word for word in words if word not in formats)
    assert adapter.supports(Primitive.LINEAR, refused).reason.endswith(f"multiplies no {refused} through torch")


def test_amd_has_two_kinds_of_fp8() -> None:
    made = [opened(AmdAdapter, arch=arch).random((4,), "fp8_e4m3", 1).dtype for arch in ("gfx942", "gfx950")]
    assert made == [torch.float8_e4m3fnuz, torch.float8_e4m3fn]


def test_a_build_of_torch_without_the_operator_is_said() -> None:
    support = fake(NvidiaAdapter, FakeBackend(), arch="sm_90").supports(Primitive.LINEAR, "int8")
    assert (support.ok, support.reason) == (False, "this torch has no _int_mm on cuda")


@pytest.mark.parametrize(
    ("dtype", "shape", "ok"),
    [
        ("int8", (17, 64, 64), True),
        ("int8", (16, 64, 64), False),
        ("int8", (32, 60, 64), False),
        ("fp8_e4m3", (1, 64, 32), True),
        ("fp8_e4m3", (1, 64, 24), False),
        ("bf16", (1, 3, 5), True),
    ],
)
def test_shapes_that_the_library_does_not_take_are_refused(
    monkeypatch: pytest.MonkeyPatch, dtype: str, shape: tuple[int, int, int], *, ok: bool
) -> None:
    monkeypatch.setattr(NvidiaAdapter, "torch_name", "cpu")  # whose build of torch has both operators
    support = fake(NvidiaAdapter, FakeBackend(), arch="sm_90").supports(Primitive.LINEAR, dtype, shape)
    assert support.ok == ok
    assert ok or "multiples" in support.reason


def test_tf32_that_computes_what_fp32_does_is_refused_once_it_can_be_tried() -> None:
    adapter = fake(NvidiaAdapter, FakeBackend(), arch="sm_90")
    assert adapter.supports(Primitive.LINEAR, "tf32").ok
    adapter.open()
    assert adapter.supports(Primitive.LINEAR, "tf32").reason == "asked for tf32, torch computed exactly what fp32 gives"


def test_tf32_sets_the_precision_for_its_own_product_only(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    linear = torch.nn.functional.linear

    def watched(*operands: Any) -> torch.Tensor:
        seen.append(torch.get_float32_matmul_precision())
        result: torch.Tensor = linear(*operands)
        return result

    monkeypatch.setattr(torch.nn.functional, "linear", watched)
    adapter = opened(arch="sm_90")
    weight = adapter.random((16, 16), "fp32", 1)
    adapter.prepare_linear(weight, None, "tf32")(weight)
    adapter.prepare_linear(weight, None, "fp32")(weight)
    assert seen == ["high", "highest"]


def test_fp8_multiplies_by_the_columns_of_the_weight_and_gives_bf16() -> None:
    adapter = opened(arch="sm_90")
    x, weight = (adapter.random((32, 64), "fp8_e4m3", seed) for seed in (1, 2))
    result = adapter.prepare_linear(weight, None, "fp8_e4m3")(x)
    exact = x.double() @ weight.double().t()
    assert result.dtype == torch.bfloat16
    assert (result.double() - exact).norm() <= 1e-2 * exact.norm()


def test_the_names_of_torch_and_of_the_toolkit_are_given() -> None:
    assert opened().software()["torch"] == torch.__version__
    assert opened(AscendAdapter).software()["torch_npu"] == "2.7"


@pytest.mark.parametrize("kind", [NvidiaAdapter, AscendAdapter])
def test_what_cannot_compile_says_why(kind: type[AcceleratorAdapter]) -> None:
    compiled = opened(kind).compile_model(len, CompileHints())
    if compiled.backend:
        pytest.skip("triton is installed")
    assert compiled.function is len
    assert "inductor" in compiled.reason


@pytest.mark.parametrize(
    ("kind", "arch", "widths"),
    [
        (NvidiaAdapter, "sm_90", (32, 64, 128, 256, 512)),
        (AmdAdapter, "gfx942", (64, 128, 256, 512, 1024)),
        (AmdAdapter, "gfx1100", (32, 64, 128, 256, 512)),
    ],
)
def test_tiles_of_our_own_are_as_wide_as_whole_groups(
    kind: type[AcceleratorAdapter], arch: str, widths: tuple[int, ...]
) -> None:
    adapter = fake(kind, FakeBackend(), arch=arch)
    assert adapter.group_widths("triton") == widths
    assert adapter.group_widths("aten") == ()
    assert ("triton" in adapter.implementations(Primitive.LINEAR, "bf16")) == (find_spec("triton") is not None)


def test_an_npu_without_its_plug_in_for_torch_says_what_to_install() -> None:
    with pytest.raises(MissingExtra, match="torch_npu"):
        AscendAdapter(HOST)


@pytest.mark.parametrize(
    ("kind", "device"), [(NvidiaAdapter, "cuda:0"), (AmdAdapter, "cuda:0"), (IntelAdapter, "xpu:0")]
)
def test_a_build_of_torch_without_the_device_is_a_typed_error(kind: type[AcceleratorAdapter], device: str) -> None:
    adapter = kind(HOST)
    adapter.set_device(Device(id="0000:03:00.0", vendor="acme", kind="gpu"))
    assert adapter.torch_device == device
    if adapter.backend.is_available():
        pytest.skip("this machine has one")
    with pytest.raises(DeviceUnavailable):
        adapter.open()


class Told(FakeBackend):
    """Tells what CUDA, ROCm or XPU does of a device."""

    facts: dict[str, Any]

    def get_device_properties(self, index: int) -> Any:
        return SimpleNamespace(**self.facts)


@pytest.mark.parametrize(
    ("kind", "arch", "facts", "units", "width", "widths"),
    [
        (NvidiaAdapter, "sm_90", {"multi_processor_count": 132}, 132, 32, ()),
        (AmdAdapter, "gfx942", {"multi_processor_count": 304}, 304, 64, ()),
        (IntelAdapter, None, {"gpu_subslice_count": 32, "sub_group_sizes": [32, 8, 16]}, 32, 32, (8, 16, 32)),
        (AscendAdapter, "910b3", {}, None, None, ()),
    ],
)
def test_an_adapter_states_units_and_widths_as_torch_tells_them(
    kind: type[AcceleratorAdapter],
    arch: str | None,
    facts: dict[str, Any],
    units: int | None,
    width: int | None,
    widths: tuple[int, ...],
) -> None:
    backend = Told()
    backend.facts = facts
    adapter = opened(kind, backend, arch=arch)
    assert (adapter.num_units, adapter.native_group_width, adapter.supported_group_widths) == (units, width, widths)
