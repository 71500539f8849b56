"""The conformance suite: ours pass it, and each way of being wrong fails the check that is about it."""

import re
import threading
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.vendors.faults import FAULTS, times
from tests.vendors.scripted import DEVICE, HOST, Complete, broken, outcome, results_of
from vllm_probe.core.errors import AdapterOutOfOrder, UnknownName
from vllm_probe.core.primitive import Primitive, Support
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.conformance import gate, reference, run_suite
from vllm_probe.vendors.conformance.numerics import TOLERANCE, samples
from vllm_probe.vendors.conformance.outcome import Outcome
from vllm_probe.vendors.conformance.suite import SAMPLES
from vllm_probe.vendors.cpu import probe as cpu
from vllm_probe.vendors.cpu.adapter import CpuAdapter
from vllm_probe.vendors.null.adapter import NullAdapter, NullTensor


def test_the_cpu_adapter_passes_with_a_thousand_allocations() -> None:
    assert SAMPLES == 1000
    host = LocalHost()
    results = run_suite(lambda: CpuAdapter(host), cpu.probe(host).devices[0])
    assert [(result.name, result.reason) for result in results if result.ok is False] == []
    names = " ".join(result.name for result in results if result.ok)
    assert all(f"{primitive}:" in names for primitive in (Primitive.LINEAR, Primitive.ATTENTION, Primitive.ROPE))


def test_the_scripted_adapter_passes_and_what_it_lacks_is_skipped_with_the_reason() -> None:
    results = run_suite(lambda: NullAdapter(HOST), DEVICE, samples=50)
    assert [result for result in results if result.ok is False] == []
    assert {(result.name, result.reason) for result in results if result.ok is None} == {
        *((name, "the adapter has none") for name in ("attention", "rope", "rms_norm", "quantize", "swap")),
        ("compile_model: the same values, or a reason", "the adapter of null0 names no compiler"),
    }


def test_an_adapter_with_every_primitive_passes() -> None:
    assert {result.ok for result in results_of(Complete) if "compile" not in result.name} == {True}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_the_check_that_is_about_it(fault: str) -> None:
    hooks, check, reason = FAULTS[fault]
    assert outcome(Complete, check).ok in {True, None}
    found = outcome(broken(**hooks), check)
    assert found.ok is False
    assert re.search(reason, found.reason), found.reason


def test_a_weight_only_kernel_that_takes_none_of_the_shapes_is_skipped_with_the_reason() -> None:
    def refuse(self: Complete, weight: Any, dtype: str) -> Any:
        raise UnknownName(f"no kernel takes {weight.shape[1]} columns", hint="none")

    kind = broken(_prepare_weight_only=refuse)
    assert outcome(kind, "over an int8 weight") == (None, "no kernel takes 64 columns")


def test_both_sides_of_every_seam_between_tiles_are_looked_at() -> None:
    for count in (1, 2, 31, 33, 70, 257):
        seen = {*samples(count, 7)}
        assert seen <= {*range(count)}
        assert {0, count - 1} <= seen
        for tile in (2**bit for bit in range(count.bit_length())):
            assert {tile - 1, tile, count // tile * tile - 1, count // tile * tile} & {*range(count)} <= seen


def test_progress_counts_the_checks_that_the_result_counts() -> None:
    told = list[tuple[str, int, int]]()
    results = run_suite(lambda: Complete(HOST), DEVICE, samples=1, progress=lambda *step: told.append(step))
    assert {total for _, _, total in told} == {len(results)}
    assert [done for _, done, _ in told] == [*range(len(results) + 1)]
    assert [name for name, _, _ in told] == [*(result.name for result in results), "checked"]


def test_one_failing_check_does_not_stop_the_others() -> None:
    results = results_of(broken(_rope=lambda self, *_: 1 / 0, _read=lambda self, *_: 1 / 0))
    failed = {result.name: result.reason for result in results if result.ok is False}
    assert failed == {
        "memory operations: read": "raised ZeroDivisionError: division by zero",
        "rope: fp32 scripted": "heads [1, 1, 16]: raised ZeroDivisionError: division by zero",
    }
    assert len(results) == len(results_of(Complete))


def test_an_adapter_that_does_not_open_is_one_failed_check() -> None:
    (result,) = results_of(broken(_open=lambda self: 1 / 0))
    assert (result.name, result.ok) == ("bring-up: opens", False)


def test_an_adapter_that_does_not_close_has_its_other_results_all_the_same() -> None:
    results = results_of(broken(_close=lambda self: 1 / 0))
    failed = [result.name for result in results if result.ok is False]
    assert failed == ["bring-up: closes and reopens", "bring-up: closes"]
    assert len(results) == len(results_of(Complete))


def test_an_adapter_that_cannot_say_what_it_has_is_a_failed_check() -> None:
    results = results_of(broken(_group_widths=lambda self, name: 1 / 0))
    assert [result.name for result in results if result.ok is False] == ["primitives: what there is"]


def test_every_width_of_a_linear_is_checked() -> None:
    def wide(self: Complete, weight: Any, bias: Any, dtype: str, implementation: str, group_width: int) -> Any:
        return times(1.0 if group_width == 8 else 1.5)(self, weight, bias, dtype, implementation)

    results = results_of(broken(_group_widths=lambda self, name: (8, 16), _prepare_wide=wide))
    wides = {result.name: result.ok for result in results if "lanes" in result.name}
    assert wides == {"linear: fp32 scripted, 8 lanes wide": True, "linear: fp32 scripted, 16 lanes wide": False}


def test_what_an_adapter_says_it_cannot_run_is_skipped() -> None:
    found = outcome(
        broken(_supports=lambda self, primitive, dtype, shape: Support(ok=False, reason="no such unit")), "linear: fp32"
    )
    assert found == Outcome(None, "no such unit")


def test_shapes_that_an_adapter_does_not_support_are_not_asked_of_it() -> None:
    def even(self: Complete, primitive: Primitive, dtype: str, shape: tuple[int, ...]) -> Support:
        return Support(ok=all(size % 8 == 0 for size in shape), reason="multiples of 8 only")

    def picky(self: Complete, weight: Any, bias: Any, dtype: str, implementation: str) -> Any:
        assert weight.shape[0] % 8 == 0
        return NullAdapter._prepare_linear(self, weight, bias, dtype, implementation)

    adapter = broken(_supports=even, _prepare_linear=picky)(HOST)
    adapter.set_device(DEVICE)
    adapter.open()
    assert gate(adapter, Primitive.LINEAR, "fp32", "scripted") is None
    nothing = broken(_supports=lambda self, *_: Support(ok=False, reason="nothing"))(HOST)
    nothing.set_device(DEVICE)
    nothing.open()
    assert gate(nothing, Primitive.LINEAR, "fp32", "scripted") == "supports none of the shapes that are checked"


def test_the_gate_needs_an_open_adapter() -> None:
    adapter = Complete(HOST)
    with pytest.raises(AdapterOutOfOrder):
        gate(adapter, Primitive.LINEAR, "fp32", "scripted")


def test_tolerances_tell_formats_apart() -> None:
    """Rounding to bf16 passes as bf16 and not as fp16, rounding to fp16 not as fp32."""
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    off = {d: float(((x.to(d).float() - x).abs() / x.abs().clamp(min=1)).max()) for d in (torch.bfloat16, torch.half)}
    assert TOLERANCE["fp32"] < off[torch.half] < TOLERANCE["fp16"]
    assert TOLERANCE["int8"] < off[torch.bfloat16] < TOLERANCE["bf16"]


def test_the_reference_agrees_with_torch_in_double_precision() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(6, heads, 4, dtype=torch.float64, generator=generator) for heads in (4, 2, 2))
    for causal in (False, True):
        want = torch.cat(
            [
                functional.scaled_dot_product_attention(
                    q[rows].transpose(0, 1),
                    k[rows].transpose(0, 1),
                    v[rows].transpose(0, 1),
                    is_causal=causal,
                    enable_gqa=True,
                ).transpose(0, 1)
                for rows in (slice(0, 4), slice(4, 6))
            ]
        )
        got = reference.attention(q.tolist(), k.tolist(), v.tolist(), [4, 2], range(6), causal=causal)
        assert got == pytest.approx(want.flatten().tolist())
    late = reference.attention(q[4:].tolist(), k.tolist(), v.tolist(), [6], range(2), causal=True)
    whole = reference.attention(q.tolist(), k.tolist(), v.tolist(), [6], range(6), causal=True)
    assert late == whole[-len(late) :]
    rows, weight = q[:, 0], k[0, 0]
    want = functional.rms_norm(rows, (4,), weight, 1e-6)
    assert reference.rms_norm(rows.tolist(), [weight.tolist()], 1e-6) == pytest.approx(want.flatten().tolist())
    angles = torch.randn(6, 2, dtype=torch.float64, generator=generator)
    turned = torch.complex(q[..., :2], q[..., 2:]) * torch.polar(torch.ones_like(angles), angles)[:, None]
    want = torch.cat((turned.real, turned.imag), -1)
    got = reference.rope(q.tolist(), angles.cos().tolist(), angles.sin().tolist())
    assert got == pytest.approx(want.flatten().tolist())
    want = functional.linear(rows, k[:, 0], v[:, 0, 0])
    points = [(i, j) for i in range(6) for j in range(6)]
    got = reference.linear(rows.tolist(), k[:, 0].tolist(), v[:, 0, 0].tolist(), points)
    assert got == pytest.approx(want.flatten().tolist())
    assert reference.scales([[1.0, -2.54], [0.0, 0.0]]) == [pytest.approx(0.02), 1.0]


def test_a_check_that_does_not_end_fails_and_those_behind_it_are_skipped() -> None:
    end = threading.Event()

    def hang(self: Any, *operands: Any) -> Any:
        end.wait()

    kind = broken(_triad=hang)
    results = run_suite(lambda: kind(HOST), DEVICE, samples=1, limit_s=6.0)
    end.set()
    hung = next(result for result in results if result.ok is False)
    assert (hung.name, hung.reason) == ("memory operations: triad", "did not end in 6 s")
    behind = results[results.index(hung) + 1 :]
    assert {(result.ok, result.reason) for result in behind} == {(None, "memory operations: triad did not end in 6 s")}
    assert behind[-1].name == "bring-up: closes"
    assert all(result.ok is not False for result in results[: results.index(hung)])


def test_an_adapter_that_does_not_open_in_time_fails_alone() -> None:
    end = threading.Event()
    kind = broken(_open=lambda self: end.wait())
    (opening,) = run_suite(lambda: kind(HOST), DEVICE, samples=1, limit_s=0.2)
    end.set()
    assert (opening.name, opening.ok, opening.reason) == ("bring-up: opens", False, "did not end in 0.2 s")


def test_what_the_constructor_raises_is_raised() -> None:
    def make() -> NullAdapter:
        raise AdapterOutOfOrder("no", hint="never")

    with pytest.raises(AdapterOutOfOrder):
        run_suite(make, DEVICE, samples=1)


def test_an_adapter_that_takes_any_size_and_alignment_fails() -> None:
    def anything(self: Any, nbytes: int, alignment: int | None = None) -> NullTensor:
        return NullTensor((nbytes,), "int8", address=64)

    found = outcome(broken(allocate=anything), "allocation: BadUsage for sizes and alignments that cannot be")
    assert found == (False, "allocate of -1 bytes at multiples of 64 does not raise BadUsage")


def test_an_address_that_is_none_is_not_aligned() -> None:
    def nowhere(self: Any, nbytes: int, alignment: int) -> NullTensor:
        tensor = NullAdapter._allocate(self, nbytes, alignment)
        return replace(tensor, address=0) if alignment > 4096 else tensor

    found = outcome(broken(_allocate=nowhere), "allocation: an alignment that is larger than the memory")
    assert found == (False, "100 bytes at multiples of 2^40 lie at 0x0")
