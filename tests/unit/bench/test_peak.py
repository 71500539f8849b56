import pytest

from tests.unit.bench.fake import cpu
from vllm_probe.bench.expectations import Expectations, published
from vllm_probe.bench.peak import Expected, Judged, judge
from vllm_probe.core.capability import Capability
from vllm_probe.core.codec import from_json
from vllm_probe.core.device import Device

GPU = Device(id="0000:03:00.0", vendor="acme", kind="gpu")


def sheet(clock_mhz: float | None = None) -> Capability:
    pointer = "/compute_units/bf16/throughput_gflops"
    about = {"source": "datasheet", "status": "measured", "clock_mhz": clock_mhz}
    document = {
        "schema_version": "2.0",
        "device_type": "acme",
        "compute_units": {"bf16": {"throughput_gflops": 1000}},
        "memory": {"bandwidth_gb_s": 500},
        "dma": {},
        "measurements": {pointer: about},
    }
    return from_json(Capability, document)


def test_a_known_clock_bounds_the_rate_on_both_sides() -> None:
    expected = Expectations(device=cpu()).compute("bf16")
    assert expected == Expected(slowest=64 * 2 * 4.0, fastest=128 * 2 * 4.0, at_mhz=4000)
    assert expected.limits(None) == (0.5 * 512.0, 1024.0)


def test_a_virtual_machine_leaves_only_the_upper_bound_of_the_fastest_core_sold() -> None:
    expected = Expectations(device=cpu(hypervisor="kvm")).compute("bf16")
    assert expected
    assert expected.limits(None)[0] is None
    assert expected.limits(None)[1] == pytest.approx(128 * 2 * 6.2)


def test_an_observed_clock_moves_both_bounds() -> None:
    expected = Expectations(device=cpu(hypervisor="kvm")).compute("bf16")
    assert expected
    assert expected.limits(3000.0) == pytest.approx((0.5 * 64 * 2 * 3.0, 128 * 2 * 3.0))
    assert judge(900.0, expected).verdict is None
    assert judge(900.0, expected, 3000.0).verdict == "suspect"
    assert judge(600.0, expected, 3000.0).pct_of_peak == pytest.approx(100 * 600 / 768)


def test_the_best_instruction_set_decides() -> None:
    expected = Expectations(device=cpu(isa=["avx2", "avx512", "avx512_bf16", "amx"])).compute("int8")
    assert expected
    assert expected.slowest == expected.fastest == 2048 * 2 * 4.0


@pytest.mark.parametrize("device", [cpu(isa=["neon"]), cpu(threads=None), GPU])
def test_of_what_is_in_no_table_only_what_no_device_reaches_is_suspect(device: Device) -> None:
    expected = Expectations(device=device)
    assert judge(1e5, expected.compute("fp32")) == Judged(None, "no peak is known to check it against", None)
    assert judge(1000.0, expected.bandwidth("triad")).verdict is None
    found = judge(56_585.0, expected.bandwidth("triad"))
    assert found.verdict == "suspect"
    assert "that no device reaches" in (found.doubt or "")
    assert judge(56_585.0, expected.link("/dma/h2d_pinned_gb_s")).verdict == "suspect"


def test_an_accelerator_is_held_against_its_data_sheet_at_the_clock_that_it_runs_at() -> None:
    expected = Expectations(device=GPU, datasheet=sheet(clock_mhz=2000.0))
    rate = expected.compute("bf16")
    assert [judge(1090.0, rate, mhz).verdict for mhz in (None, 2000.0, 2200.0)] == ["suspect", "suspect", "normal"]
    assert [judge(480.0, rate, mhz).verdict for mhz in (2000.0, 1900.0)] == ["low", "normal"]
    assert judge(540.0, expected.bandwidth("triad"), 2200.0).verdict == "suspect"
    assert judge(240.0, expected.bandwidth("triad")).verdict == "low"


def test_published_values_say_better_than_the_data_sheet_what_is_low() -> None:
    published = {"/compute_units/bf16/throughput_gflops": (800.0, 850.0), "/dma/h2d_pinned_gb_s": (20.0, 25.0)}
    expected = Expectations(device=GPU, datasheet=sheet(), published=published)
    assert [judge(value, expected.compute("bf16")).verdict for value in (759.0, 761.0, 1040.0)] == [
        "low",
        "normal",
        "normal",
    ]
    assert [judge(value, expected.link("/dma/h2d_pinned_gb_s")).verdict for value in (18.0, 30.0)] == ["low", "normal"]


def test_what_others_reached_is_not_impossible_while_the_clock_is_not_known() -> None:
    card = Expected(slowest=165.0, fastest=165.0, at_mhz=2520.0, usual=(170.0, 179.0))
    assert [judge(value, card).verdict for value in (179.0, 187.0, 189.0)] == ["normal", "normal", "suspect"]
    assert [judge(179.0, card, mhz).verdict for mhz in (2520.0, 2740.0)] == ["suspect", "normal"]


def test_published_values_are_found_by_the_name_of_the_descriptor() -> None:
    assert set(published("gb10")) >= {"/compute_units/bf16/throughput_gflops", "/memory/read_gb_s"}
    assert all(0 < least <= most for least, most in published("gb10").values())
    assert published("of nobody") == {}


@pytest.mark.parametrize(("value", "verdict"), [(49.0, "low"), (51.0, "normal"), (209.0, "normal"), (211.0, "suspect")])
def test_the_verdict_is_low_under_half_of_the_slowest_and_suspect_over_105_percent(value: float, verdict: str) -> None:
    assert judge(value, Expected(slowest=100.0, fastest=200.0)).verdict == verdict


def test_without_a_clock_a_possible_rate_gets_no_verdict_and_a_doubt() -> None:
    bounded = Expected(slowest=100.0, fastest=200.0, at_mhz=6200.0, is_own_clock=False)
    assert judge(100.0, bounded) == (None, "the clock is not known", None)
    assert judge(100.0, None)[0] is None
