"""Every implementation of the row-wise operations against its formula."""

import pytest
import torch

from tests.vendors.tolerance import TOLERANCE
from vllm_probe.vendors.torchbase import DTYPES
from vllm_probe.vendors.torchbase.rowwise import QUANTIZE, ROPE

FLOATS = ("fp32", "bf16", "fp16")
SHAPES = ((7, 3, 16), (700, 12, 128), (1, 1, 2), (0, 4, 8))  # the second is more than one block


@pytest.mark.parametrize("name", ROPE)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_rope_turns_each_pair_by_the_angle_of_its_token(
    name: str, dtype: str, shape: tuple[int, int, int]
) -> None:
    tokens, num_heads, head_dim = shape
    wide = torch.randn(tokens, num_heads + 2, head_dim, generator=torch.Generator().manual_seed(1)).to(DTYPES[dtype])
    heads, angles = wide[:, 1 : num_heads + 1], torch.arange(tokens * head_dim / 2).view(tokens, head_dim // 2)
    before, cosines, sines = heads.clone(), angles.cos().to(heads.dtype), angles.sin().to(heads.dtype)
    result = ROPE[name](heads, cosines, sines)
    first, second = heads.double().chunk(2, -1)
    cosine, sine = cosines.double()[:, None], sines.double()[:, None]
    exact = torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)
    assert (result.shape, result.dtype) == (heads.shape, heads.dtype)
    assert (result.double() - exact).norm() <= TOLERANCE[dtype] * exact.norm()
    assert torch.equal(heads, before)


@pytest.mark.parametrize("name", QUANTIZE)
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_quantization_rounds_exactly_over_the_largest_of_each_row(name: str, dtype: str) -> None:
    rows = torch.randn(1200, 512, generator=torch.Generator().manual_seed(2)).to(DTYPES[dtype])
    rows[3], rows[4, 0], rows[5] = 0, -40, torch.arange(512) - 127
    before = rows.clone()
    quants, scales = QUANTIZE[name](rows)
    exact = rows.float()
    expected = exact.abs().amax(-1) / 127
    expected[3] = 1
    assert (quants.dtype, scales.dtype, quants.shape, scales.shape) == (torch.int8, torch.float32, rows.shape, (1200,))
    assert torch.equal(scales, expected)
    assert torch.equal(quants.float(), (exact / expected[:, None]).round())
    assert int(quants[4, 0]) == -127
    assert torch.equal(rows, before)


@pytest.mark.parametrize("name", QUANTIZE)
def test_a_tie_goes_to_the_even_neighbour(name: str) -> None:
    quants, _ = QUANTIZE[name](torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5]]))
    assert quants.tolist() == [[127, 0, 2, 2, 0, -2]]
