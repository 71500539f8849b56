from dataclasses import replace

import pytest

from tests.unit.bench.fake import MIB, cpu
from vllm_probe.bench.plan import make_plan
from vllm_probe.core.device import DeviceMemory
from vllm_probe.core.errors import UnknownName


def test_arrays_are_four_times_and_weights_three_times_the_last_level_cache() -> None:
    plan = make_plan(cpu(caches={"l1d": 1, "l2": MIB, "l3": 32 * MIB}), quick=False, only=frozenset())
    assert (plan.array_bytes, plan.operand_bytes) == (128 * MIB, 96 * MIB)
    assert plan.cache_known


def test_an_unknown_cache_is_assumed_and_said_to_be() -> None:
    plan = make_plan(cpu(caches=None), quick=False, only=frozenset())
    assert plan.cache_bytes == 64 * MIB
    assert not plan.cache_known


def test_nothing_takes_more_than_a_quarter_of_the_memory() -> None:
    small = replace(cpu(caches={"l3": 512 * MIB}), memory=DeviceMemory(usable_bytes=1200 * MIB))
    plan = make_plan(small, quick=False, only=frozenset())
    assert 3 * plan.array_bytes + 4 * plan.operand_bytes <= 300 * MIB


def test_quick_is_shorter_everywhere() -> None:
    quick, full = (make_plan(cpu(), quick=flag, only=frozenset()) for flag in (True, False))
    assert quick.round_s < full.round_s
    assert quick.soft_s < full.soft_s < full.hard_s < 120


def test_a_load_that_is_asked_for_has_its_time_even_when_quick() -> None:
    usual, asked = (make_plan(cpu(), quick=True, only=frozenset(), sustained_s=each) for each in (None, 60.0))
    assert "thermal" not in usual.groups
    assert usual.absence("thermal") == "--quick leaves thermal out"
    assert asked.groups == usual.groups | {"thermal"}
    assert asked.absence("overlap") == "--quick leaves overlap out"
    assert asked.sustained_s == 60.0
    for name in ("end_s", "hard_s", "stop_s"):
        assert getattr(asked, name) >= getattr(usual, name) + 60.0
    assert usual.end_s < usual.hard_s < usual.stop_s < 120.0


def test_only_takes_known_names_and_lists_them_otherwise() -> None:
    assert make_plan(cpu(), quick=True, only=frozenset({"memory"})).groups == {"memory"}
    with pytest.raises(UnknownName, match="'gem'") as caught:
        make_plan(cpu(), quick=True, only=frozenset({"gem", "memory"}))
    assert "gemm, memory" in caught.value.hint
