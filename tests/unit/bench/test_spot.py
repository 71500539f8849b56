"""Every way of doing less than all of the work, at the size that is timed."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.unit.bench.fake import FakeAdapter, Values
from vllm_probe.bench import spot
from vllm_probe.vendors.conformance import reference

ROWS, DEPTH, WIDTH = 96, 64, 160
Change = Callable[[Sequence[int], float], float]


class Checked:
    """A product of random operands, and what some change of its values makes of it."""

    def __init__(self) -> None:
        self.adapter = FakeAdapter()
        self.x, weight = (self.adapter.random((size, DEPTH), "fp32", 7 + i) for i, size in enumerate((ROWS, WIDTH)))
        self.columns = spot.columns_of(self.adapter, weight)
        self.weight = weight

    def at(self, place: Sequence[int]) -> float:
        return reference.dot(self.x.at(place[:1]), self.weight.at(place[1:]))

    def require(self, change: Change, shape: tuple[int, int] = (ROWS, WIDTH)) -> None:
        result = Values(shape, list, lambda place: change(place, self.at(place)))
        spot.require_linear(self.adapter, "fp32", self.x, self.columns, result)


def test_a_product_that_is_right_passes() -> None:
    Checked().require(lambda place, value: value * (1 + 1e-6))


@pytest.mark.parametrize(
    "change",
    [
        lambda place, value: value if place[0] < ROWS // 2 else 0.0,
        lambda place, value: value if place[0] >= ROWS // 2 else 0.0,
        lambda place, value: value if place[1] < WIDTH // 2 else 0.0,
        lambda place, value: value if place[1] >= WIDTH // 2 else 0.0,
        lambda place, value: 2 * value,
        lambda place, value: float("nan"),
    ],
    ids=["first rows", "last rows", "first columns", "last columns", "doubled", "not a number"],
)
def test_a_product_of_which_a_part_is_missing_is_refused(change: Change) -> None:
    with pytest.raises(ArithmeticError, match=r"the timed result \[96, 160\]"):
        Checked().require(change)


def test_a_product_of_half_of_the_rows_is_refused_for_its_shape() -> None:
    with pytest.raises(ArithmeticError, match=r"gives \[48, 160\], not \[96, 160\]"):
        Checked().require(lambda place, value: value, (ROWS // 2, WIDTH))


def tensor(values: list[Any]) -> Values:
    adapter = FakeAdapter()
    return adapter.from_host(values, "fp32")


def some(*shape: int, seed: int = 0) -> list[Any]:
    return FakeAdapter().random(shape, "fp32", seed).tolist()


def split(values: list[float], *shape: int) -> list[Any]:
    for size in reversed(shape):
        values = [values[i : i + size] for i in range(0, len(values), size)]  # type: ignore[misc]
    return values


def test_a_rope_of_the_first_half_of_the_tokens_is_refused() -> None:
    heads, cosines, sines = some(16, 2, 8), some(16, 4, seed=1), some(16, 4, seed=2)
    operands = [tensor(each) for each in (heads, cosines, sines)]
    right = split(reference.rope(heads, cosines, sines), 2, 8)
    spot.require_rope(FakeAdapter(), "fp32", operands, tensor(right))
    with pytest.raises(ArithmeticError):
        spot.require_rope(FakeAdapter(), "fp32", operands, tensor([*right[:8], *heads[8:]]))


def test_a_norm_of_the_first_half_of_the_rows_is_refused() -> None:
    rows, weight = some(16, 8), some(8, seed=1)
    operands = [tensor(rows), tensor(weight)]
    right = split(reference.rms_norm(rows, [weight], 1e-6), 8)
    spot.require_rms_norm(FakeAdapter(), "fp32", operands, 1e-6, tensor(right))
    with pytest.raises(ArithmeticError):
        spot.require_rms_norm(FakeAdapter(), "fp32", operands, 1e-6, tensor([*right[:8], *rows[8:]]))


def test_attention_that_leaves_out_the_last_tokens_is_refused() -> None:
    query, key, value = lists = [some(16, heads, 8, seed=seed) for seed, heads in enumerate((4, 2, 2))]
    operands = [tensor(each) for each in lists]
    right = split(reference.attention(query, key, value, [8, 8], range(16), causal=True), 4, 8)
    spot.require_attention(FakeAdapter(), "fp32", operands, 8, tensor(right))
    with pytest.raises(ArithmeticError):
        spot.require_attention(FakeAdapter(), "fp32", operands, 8, tensor([*right[:12], *query[12:]]))


def test_rows_that_are_not_quantized_are_refused() -> None:
    rows = some(16, 8)
    scales = reference.scales(rows)
    right = [[round(x / scale) for x in row] for row, scale in zip(rows, scales, strict=True)]
    spot.require_quantized(FakeAdapter(), tensor(rows), (tensor(right), tensor(scales)))
    for wrong in ((tensor([*right[:8], *right[:8]]), tensor(scales)), (tensor(right), tensor([1.0] * 16))):
        with pytest.raises(ArithmeticError):
            spot.require_quantized(FakeAdapter(), tensor(rows), wrong)
