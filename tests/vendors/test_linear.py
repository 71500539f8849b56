"""Weights that are kept narrow, on the CPU."""

from collections.abc import Iterator

import pytest
import torch

from vllm_probe.core.errors import UnknownName
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.cpu.adapter import CpuAdapter
from vllm_probe.vendors.cpu.probe import probe
from vllm_probe.vendors.torchbase.linear import has_kernel, weight_only_formats

BOUND = {"int8": 0.012, "int4": 0.1}
"""Relative error of a normal weight rounded in steps: step / sqrt(12), with a quarter on top for scales in bf16.

The step is about 8 sigma / 254 in int8, over a row of 1024, and 4.2 sigma / 15 in int4, over a group of 32.
"""


@pytest.fixture
def adapter() -> Iterator[CpuAdapter]:
    host = LocalHost()
    adapter = CpuAdapter(host)
    adapter.set_device(probe(host).devices[0])
    adapter.open()
    yield adapter
    adapter.close()


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("rows", [1, 5, 64])
def test_a_narrow_weight_costs_no_more_than_its_rounding(adapter: CpuAdapter, dtype: str, rows: int) -> None:
    weight, x = adapter.random((48, 1024), "bf16", 1), adapter.random((rows, 1024), "bf16", 2)
    linear = adapter.prepare_weight_only(weight.clone(), dtype)
    exact = x.double() @ weight.double().t()
    result = linear(x)
    assert (result.shape, result.dtype) == ((rows, 48), torch.bfloat16)
    assert (result.double() - exact).norm() <= BOUND[dtype] * exact.norm()


@pytest.mark.parametrize("dtype", BOUND)
def test_weights_that_the_format_holds_exactly_stay_exact(adapter: CpuAdapter, dtype: str) -> None:
    levels = torch.arange(-7, 9.0) if dtype == "int4" else torch.tensor([-127.0, -64, 0, 3, 127])
    weight = levels[torch.arange(16 * 64).view(16, 64) % len(levels)].bfloat16()
    linear = adapter.prepare_weight_only(weight, dtype)
    assert torch.equal(linear(torch.eye(64).bfloat16()), weight.t())


def test_a_group_of_equal_weights_is_no_division_by_zero(adapter: CpuAdapter) -> None:
    weight = torch.full((16, 64), 0.5).bfloat16()
    assert torch.equal(adapter.prepare_weight_only(weight, "int4")(torch.eye(64).bfloat16()), weight.t())


def test_what_no_kernel_takes_is_refused_with_the_size(adapter: CpuAdapter) -> None:
    for n, k in ((30, 64), (32, 100)):
        with pytest.raises(UnknownName, match=rf"\[{n}, {k}\]"):
            adapter.prepare_weight_only(adapter.random((n, k), "bf16", 1), "int4")
    with pytest.raises(UnknownName, match="fp16"):
        adapter.prepare_weight_only(adapter.random((16, 64), "bf16", 1), "fp16")


def test_formats_are_those_that_this_torch_has_kernels_for(adapter: CpuAdapter) -> None:
    assert adapter.weight_only_formats() == ("int8", "int4")
    assert weight_only_formats("hpu") == ()
    assert has_kernel("_int_mm", "CPU")
    assert not has_kernel("_no_such_operator", "CPU")
