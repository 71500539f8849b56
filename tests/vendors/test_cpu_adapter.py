"""The CPU adapter against float32 references; tolerances are those of `tolerance.py`."""

import platform
import resource
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from tests.vendors.tolerance import TOLERANCE
from vllm_probe.core.errors import AdapterOutOfOrder, UnknownName
from vllm_probe.core.primitive import Primitive
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.cpu.adapter import CpuAdapter
from vllm_probe.vendors.cpu.probe import probe
from vllm_probe.vendors.torchbase import DTYPES

HOST = LocalHost()
DEVICE = probe(HOST).devices[0]
FLOATS = ("fp32", "bf16", "fp16")


def opened(**details: Any) -> CpuAdapter:
    adapter = CpuAdapter(HOST)
    adapter.set_device(replace(DEVICE, details=DEVICE.details | details))
    adapter.open()
    return adapter


@pytest.fixture
def adapter() -> Iterator[CpuAdapter]:
    device = opened()
    yield device
    device.close()


def error(result: torch.Tensor, reference: torch.Tensor) -> float:
    return float((result.double() - reference.double()).norm() / reference.double().norm())


def test_opening_sets_the_threads_of_the_budget_and_closing_gives_them_back() -> None:
    before = torch.get_num_threads()
    adapter = opened(threads=1)
    assert torch.get_num_threads() == 1
    adapter.close()
    assert torch.get_num_threads() == before


def test_the_arithmetic_of_the_process_that_opens_it_stays_as_it_was() -> None:
    adapter = opened(threads=1)
    assert float(torch.tensor([1e-40]) * 1) != 0
    adapter.close()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have no such option")
def test_memory_that_a_step_frees_is_reused_by_the_next(adapter: CpuAdapter) -> None:
    def step() -> None:
        _ = [torch.ones(2 << 20) for _ in range(6)]  # 8 MiB each, 12,288 pages in all

    for _ in range(2):  # the first fills the holes that other tests left
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        step()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 12_288  # 49,152 when nothing is reused


def test_nothing_is_allocated_before_open() -> None:
    adapter = CpuAdapter(HOST)
    with pytest.raises(AdapterOutOfOrder):
        adapter.allocate(64)


@pytest.mark.parametrize("alignment", [1, 64, 256, 4096, 2 << 20])
@pytest.mark.parametrize("nbytes", [1, 100, 4097])
def test_allocations_have_the_size_and_alignment_asked_for(adapter: CpuAdapter, nbytes: int, alignment: int) -> None:
    buffers = [adapter.allocate(nbytes, alignment) for _ in range(3)]
    for buffer in buffers:
        buffer.fill_(7)
        assert (buffer.nbytes, buffer.data_ptr() % alignment) == (nbytes, 0)


def test_memory_is_that_of_the_machine(adapter: CpuAdapter) -> None:
    memory = adapter.memory()
    assert memory.total_bytes == DEVICE.memory.reported_bytes
    assert memory.free_bytes is not None
    assert memory.total_bytes is not None
    assert 0 < memory.free_bytes <= memory.total_bytes


@pytest.mark.parametrize("dtype", DTYPES)
def test_random_data_is_seeded_and_of_its_distribution(adapter: CpuAdapter, dtype: str) -> None:
    shape = (1 << 20) + 3
    first, again, other = (adapter.random((shape,), dtype, seed) for seed in (1, 1, 2))
    assert first.dtype == DTYPES[dtype]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    spread = first.float().std().item()
    assert spread == pytest.approx(256 / 12**0.5 if dtype == "int8" else 1.0, rel=0.01)
    assert first.unique().numel() == 256 or dtype != "int8"


def test_copy_read_and_triad_compute_what_they_say(adapter: CpuAdapter) -> None:
    b, c = (adapter.random((100_001,), "fp32", seed) for seed in (1, 2))
    out = torch.empty_like(b)
    adapter.triad(b, c, 0.5, out)
    assert torch.equal(out, b + 0.5 * c)
    adapter.copy(b, out)
    assert torch.equal(out, b)
    assert adapter.read(b).item() == pytest.approx(b.double().sum().item(), rel=1e-3)


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_linear_agrees_with_float32_at_every_row_count(
    adapter: CpuAdapter, dtype: str, *, with_bias: bool
) -> None:
    names = adapter.implementations(Primitive.LINEAR, dtype)
    assert names
    for n, k in ((96, 64), (30, 384), (384, 100)):
        weight = adapter.random((n, k), dtype, 1)
        bias = None
        if with_bias:
            bias = torch.arange(n, dtype=torch.int32) if dtype == "int8" else adapter.random((n,), dtype, 2)
        linears = {name: adapter.prepare_linear(weight.clone(), bias, dtype, name) for name in names}
        for rows in (1, 2, 7, 32, 511, 1030):
            x = adapter.random((rows, k), dtype, 3)
            reference = x.double() @ weight.double().t() + (0 if bias is None else bias.double())
            for name, linear in linears.items():
                result = linear(x)
                assert result.dtype == (torch.int32 if dtype == "int8" else DTYPES[dtype])
                assert result.shape == (rows, n)
                assert error(result, reference) <= TOLERANCE[dtype], f"{name} at {rows} rows of {n}x{k}"


def test_weights_are_packed_where_onednn_can(adapter: CpuAdapter) -> None:
    assert adapter.implementations(Primitive.LINEAR, "fp32") == ("onednn_prepacked", "aten")
    assert adapter.implementations(Primitive.LINEAR, "int8") == ("int_mm",)
    assert adapter.implementations(Primitive.LINEAR, "int4") == ()
    assert adapter.implementations(Primitive.ROPE, "bf16") == ("blocked", "eager", "naive")
    with pytest.raises(UnknownName):
        adapter.prepare_linear(adapter.random((8, 8), "fp32", 0), None, "fp32", "magic")


def test_an_implementation_that_is_not_there_is_refused_by_name(adapter: CpuAdapter) -> None:
    rows, table = adapter.random((2, 3, 8), "fp32", 1), adapter.random((2, 4), "fp32", 2)
    with pytest.raises(UnknownName, match="rope has no implementation 'magic'"):
        adapter.rope(rows, table, table, implementation="magic")
    with pytest.raises(UnknownName, match="attention has no implementation 'magic'"):
        adapter.attention(rows, rows, rows, [2], causal=True, implementation="magic")


def test_a_format_without_arithmetic_is_refused_or_said() -> None:
    plain = opened(isa=["sse4_2", "avx", "avx2"])
    rich = opened(isa=["avx2", "avx512", "avx512_vnni", "avx512_bf16", "avx512_fp16"])
    assert [rich.supports(Primitive.LINEAR, dtype).reason for dtype in DTYPES] == [""] * 4
    assert plain.supports(Primitive.LINEAR, "fp32").reason == ""
    for dtype in ("bf16", "fp16"):
        support = plain.supports(Primitive.LINEAR, dtype)
        assert support.ok
        assert support.reason.startswith(f"no {dtype} arithmetic")
    support = plain.supports(Primitive.LINEAR, "int8")
    assert not support.ok
    assert "VNNI" in support.reason
    support = rich.supports(Primitive.ATTENTION, "int8")
    assert (support.ok, support.reason) == (False, "torch has no attention in int8 on cpu")
    plain.close()
    rich.close()


def test_attention_avoids_the_fused_kernel_where_bf16_is_multiplied() -> None:
    plain, rich = opened(isa=["avx2"]), opened(isa=["avx512_bf16"])
    assert plain.implementations(Primitive.ATTENTION, "bf16") == ("sdpa", "bmm")
    assert rich.implementations(Primitive.ATTENTION, "bf16") == ("bmm", "sdpa")
    assert rich.implementations(Primitive.ATTENTION, "fp32") == ("sdpa", "bmm")
    plain.close()
    rich.close()


def attention_reference(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, lengths: list[int], *, causal: bool
) -> torch.Tensor:
    """[tokens, heads, head_dim] in double precision, one sequence and head at a time."""
    group = query.shape[1] // key.shape[1]
    out, start = torch.zeros(query.shape, dtype=torch.double), 0
    for length in lengths:
        rows = slice(start, start + length)
        for head in range(query.shape[1]):
            q, k, v = (
                part[rows, at].double() for part, at in ((query, head), (key, head // group), (value, head // group))
            )
            scores = q @ k.t() / q.shape[1] ** 0.5
            if causal:
                scores = scores.masked_fill(torch.ones_like(scores).triu(1) == 1, float("-inf"))
            out[rows, head] = scores.softmax(-1) @ v
        start += length
    return out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [(12, 12), (4, 2), (4, 1)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_attention_stays_within_each_sequence(
    adapter: CpuAdapter, dtype: str, heads: tuple[int, int], *, causal: bool
) -> None:
    for lengths in ([5], [1], [33, 33, 33], [1, 70, 3, 70, 1, 12], [3, 0, 3], [64, 64, 2], [520]):
        query, key, value = (
            adapter.random((sum(lengths), num, 32), dtype, seed) for seed, num in enumerate((heads[0], *heads[1:] * 2))
        )
        reference = attention_reference(query, key, value, lengths, causal=causal)
        for name in (None, *adapter.implementations(Primitive.ATTENTION, dtype)):
            result = adapter.attention(query, key, value, lengths, causal=causal, implementation=name)
            assert (result.shape, result.dtype) == (query.shape, query.dtype)
            assert error(result, reference) <= TOLERANCE[dtype], f"{name} with {lengths}"


def test_sequences_of_one_length_share_one_flash_call(adapter: CpuAdapter) -> None:
    lengths = [7, 4, 7, 4, 7]
    query = adapter.random((sum(lengths), 2, 16), "bf16", 1)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        adapter.attention(query, query, query, lengths, causal=False, implementation="sdpa")
    calls = [event.name for event in recorded.events() or ()]
    assert calls.count("aten::_scaled_dot_product_flash_attention_for_cpu") == 2


def test_a_long_prompt_attends_in_parts_that_fit(adapter: CpuAdapter, monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value = (adapter.random((600, heads, 32), "fp32", heads) for heads in (4, 2, 2))
    whole = adapter.attention(query, key, value, [600], causal=True, implementation="bmm")
    monkeypatch.setattr("vllm_probe.vendors.torchbase.attention._SCORES", 1)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        parts = adapter.attention(query, key, value, [600], causal=True, implementation="bmm")
    assert [event.name for event in recorded.events() or ()].count("aten::softmax") == 2 * 3
    assert torch.allclose(parts, whole, atol=1e-6)


@pytest.mark.parametrize("dtype", FLOATS)
def test_rms_norm_agrees_with_its_formula_and_rounds_before_the_weight(adapter: CpuAdapter, dtype: str) -> None:
    rows, weight = adapter.random((9, 6, 100), dtype, 1)[:, 1:4] * 20, adapter.random((3, 100), dtype, 2)
    exact = rows.double() / (rows.double().square().mean(-1, keepdim=True) + 0.1).sqrt()
    for name in (None, *adapter.implementations(Primitive.RMS_NORM, dtype)):
        result = adapter.rms_norm(rows, weight, 0.1, implementation=name)
        assert (result.shape, result.dtype) == (rows.shape, rows.dtype)
        assert error(result, exact * weight.double()) <= TOLERANCE[dtype], name
        ones = adapter.rms_norm(rows, torch.ones_like(weight), 0.1, implementation=name)
        assert torch.equal(result, ones * weight), name


@pytest.mark.parametrize("dtype", FLOATS)
def test_rope_turns_each_pair_by_the_angle_of_its_token(adapter: CpuAdapter, dtype: str) -> None:
    heads, angles = adapter.random((7, 5, 16), dtype, 1)[:, :3], torch.arange(56.0).view(7, 8)
    result = adapter.rope(heads, angles.cos().to(heads.dtype), angles.sin().to(heads.dtype))
    pairs = torch.complex(heads[..., :8].double(), heads[..., 8:].double())
    turned = pairs * torch.polar(torch.ones(7, 1, 8).double(), angles[:, None].double())
    assert (result.shape, result.dtype) == (heads.shape, heads.dtype)
    assert error(result, torch.cat((turned.real, turned.imag), dim=-1)) <= TOLERANCE[dtype]


def test_a_batch_is_timed_in_order_and_synchronised(adapter: CpuAdapter) -> None:
    done: list[int] = []
    seconds = adapter.time_batch([lambda n=n: done.append(n) for n in range(3)])  # type: ignore[misc]  # bound for this turn
    assert done == [0, 1, 2]
    assert seconds > 0
    adapter.fence("system")
    assert adapter.memory_fence_scope == "system"


def test_the_libraries_that_compute_are_named(adapter: CpuAdapter) -> None:
    assert adapter.software()["torch"] == torch.__version__
    assert adapter.software()["onednn"].startswith("3.")


def test_tensors_come_from_sequences_and_other_tensors(adapter: CpuAdapter) -> None:
    assert adapter.tensor([[1, 2]]).dtype == torch.int64
    assert adapter.tensor([1.5], torch.bfloat16).dtype == torch.bfloat16
    data = torch.ones(3)
    assert adapter.tensor(data) is data


def test_a_part_of_a_vector_is_its_bytes(adapter: CpuAdapter) -> None:
    vector = adapter.from_host([1.0, 2.0, 3.0], "fp32")
    part = adapter.part(vector, 8, 4)
    assert part is not None
    adapter.copy(adapter.from_host([0, 0, 32, 65], "int8"), part)
    assert adapter.to_host(vector) == [1.0, 2.0, 10.0]
