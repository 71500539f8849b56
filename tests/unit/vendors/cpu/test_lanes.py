import pytest

from vllm_probe.vendors.cpu.lanes import CAPABILITIES, LIMITS, lanes_of


@pytest.mark.parametrize(
    ("isa", "lanes"),
    [
        (["sse4_2", "avx", "avx2", "avx512", "avx512_bf16", "amx"], (16, 8, 4)),
        (["sse4_2", "avx", "avx2", "avx_vnni"], (8, 4)),
        (["sse4_2", "avx"], ()),
        (["neon", "sve", "i8mm"], ()),
        ([], ()),
    ],
)
def test_a_processor_can_be_limited_to_its_own_width_and_to_narrower_ones(
    isa: list[str], lanes: tuple[int, ...]
) -> None:
    assert lanes_of(isa) == lanes


def test_every_limit_has_a_word_by_which_it_is_recognised() -> None:
    assert LIMITS.keys() == CAPABILITIES.keys()
    assert len({tuple(sorted(variables)) for variables in LIMITS.values()}) == 1
