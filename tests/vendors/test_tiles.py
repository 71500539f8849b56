"""The Triton kernel in Triton's interpreter, which needs no accelerator; `make test-triton` sets it up.

The interpreter multiplies with NumPy, which has no bf16; that format differs from fp16 in the type of operands alone.
"""

from importlib.util import find_spec

import pytest
import torch

from tests.vendors.tolerance import TOLERANCE
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.torchbase import DTYPES

pytestmark = [
    pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed: make test-triton"),
    pytest.mark.skipif(LocalHost().env("TRITON_INTERPRET") != "1", reason="not in the interpreter: make test-triton"),
]


@pytest.mark.parametrize("num_warps", [1, 4, 16])
@pytest.mark.parametrize("dtype", ["fp16", "fp32", "int8"])
@pytest.mark.parametrize(("rows", "k", "n"), [(1, 33, 7), (64, 64, 64), (70, 100, 130)])
def test_tiles_agree_with_the_product_whatever_the_width_of_a_group(
    dtype: str, rows: int, k: int, n: int, num_warps: int
) -> None:
    from vllm_probe.vendors.torchbase.tiles import tiled

    generator = torch.Generator().manual_seed(k)
    if dtype == "int8":
        x, weight = (torch.randint(-128, 128, (size, k), dtype=torch.int8, generator=generator) for size in (rows, n))
        bias = torch.arange(n, dtype=torch.int32)
    else:
        x, weight = (torch.randn(size, k, generator=generator).to(DTYPES[dtype]) for size in (rows, n))
        bias = torch.randn(n, generator=generator).to(DTYPES[dtype])
    exact = x.double() @ weight.double().t()
    for added in (None, bias):
        result = tiled(weight, added, num_warps)(x)
        expected = exact if added is None else exact + added.double()
        assert (result.shape, result.dtype) == ((rows, n), torch.int32 if dtype == "int8" else x.dtype)
        assert (result.double() - expected).norm() <= TOLERANCE[dtype] * expected.norm()
