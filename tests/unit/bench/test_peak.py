import pytest

from tests.unit.bench.fake import cpu
from vllm_probe.bench.peak import Band, arithmetic_band, judge
from vllm_probe.core.device import Device


def test_a_known_clock_bounds_the_rate_on_both_sides() -> None:
    assert arithmetic_band(cpu(), "bf16") == Band(slowest=64 * 2 * 4.0, fastest=128 * 2 * 4.0)


def test_a_virtual_machine_leaves_only_the_upper_bound_of_the_fastest_core_sold() -> None:
    assert arithmetic_band(cpu(hypervisor="kvm"), "bf16") == Band(slowest=None, fastest=128 * 2 * 6.2)


def test_the_best_instruction_set_decides() -> None:
    band = arithmetic_band(cpu(isa=["avx2", "avx512", "avx512_bf16", "amx"]), "int8")
    assert band == Band(slowest=2048 * 2 * 4.0, fastest=2048 * 2 * 4.0)


@pytest.mark.parametrize(
    "device", [cpu(isa=["neon"]), cpu(threads=None), Device(id="0000:03:00.0", vendor="acme", kind="gpu")]
)
def test_what_is_not_in_the_table_has_no_band(device: Device) -> None:
    assert arithmetic_band(device, "fp32") is None


@pytest.mark.parametrize(("value", "verdict"), [(49.0, "low"), (51.0, "normal"), (209.0, "normal"), (211.0, "suspect")])
def test_the_verdict_is_low_under_half_of_the_slowest_and_suspect_over_105_percent(value: float, verdict: str) -> None:
    assert judge(value, Band(slowest=100.0, fastest=200.0))[0] == verdict


def test_without_a_clock_a_possible_rate_gets_no_verdict_and_a_doubt() -> None:
    assert judge(100.0, Band(slowest=None, fastest=200.0)) == (None, "the clock is not known")
    assert judge(100.0, None)[0] is None
