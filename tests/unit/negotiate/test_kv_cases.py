"""The memory laws against start-up logs of real vLLM: our own facts always, the large collection where it is."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.kv_cases import CASES, Case, cells, length_of, predict, read, released, score, spec_of, table_of

FACTS = Path(__file__).with_name("kv_facts.jsonl")
COLLECTED = pytest.mark.skipif(not CASES.exists(), reason="the collected start-up logs are not beside the repository")


@pytest.fixture(scope="module")
def collected() -> list[Case]:
    return read(CASES)


def test_our_facts_are_all_judged_and_near() -> None:
    facts = read(FACTS)
    assert [case.why for case in facts if case.why] == []
    assert all(case.row["source"].startswith(("https://", "github.com/")) for case in facts)
    found = score(facts)
    assert found.kv_cells >= 8
    assert found.weights_worst <= 0.01
    assert found.kv_near == found.right == 1
    assert found.kv_mean <= 0.01
    assert found.activation_near == 1


def test_starts_that_all_fall_in_one_half_have_a_table_too() -> None:
    half = [case for case in read(FACTS) if case.is_fit]
    assert "| check | 0.00% | 0 |" in table_of(half)


@COLLECTED
def test_weights_of_every_start_of_a_known_model_are_within_one_percent(collected: list[Case]) -> None:
    assert score(collected).weights_worst <= 0.01


@COLLECTED
def test_the_kv_memory_of_nine_cells_in_ten_is_within_five_percent(
    collected: list[Case], capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        sys.stdout.write(f"\n{table_of(collected)}\n")
    found = score(collected)
    assert found.kv_cells >= 15
    assert found.kv_near >= 0.9
    assert found.kv_mean <= 0.02
    assert found.tokens_near >= 0.9
    assert found.activation_near >= 0.85


@COLLECTED
def test_cells_that_were_not_fitted_do_as_well(collected: list[Case]) -> None:
    kept = score(case for case in collected if not case.is_fit)
    assert kept.kv_cells >= 5
    assert kept.kv_near >= 0.9
    assert kept.kv_mean <= 0.02


@COLLECTED
def test_starts_are_judged_right_and_hardly_any_is_wrongly_said_to_boot(collected: list[Case]) -> None:
    found = score(collected)
    assert found.starts >= 50
    assert found.failures >= 5
    assert found.right >= 0.95
    assert found.false_boots <= 0.02


@COLLECTED
def test_with_every_default_pinned_the_bars_hold_too(collected: list[Case]) -> None:
    found = score(collected, pinned=True)
    assert found.starts >= 70
    assert found.right >= 0.95
    assert found.false_boots <= 0.02


def test_a_start_that_states_no_length_is_asked_for_the_limit_of_its_model() -> None:
    """What lowered the length until it fitted could not see that vLLM refuses."""
    row = json.loads(next(line for line in FACTS.read_text().splitlines() if '"kv_avail_gib": 57.5,' in line))
    asked = row | {"max_model_len": None, "gpu_memory_utilization": 0.27, "kv_avail_gib": None}
    asked["outcome"] = "fail_kv_lt_maxlen"
    found = predict(asked)
    assert not found.boots
    assert found.is_right
    assert found.is_stated
    guessed = predict(asked | {"gpu_memory_utilization": None})
    assert guessed.is_judged
    assert not guessed.is_stated


def test_a_start_that_came_up_with_fewer_tokens_than_the_limit_had_a_shorter_length() -> None:
    row = json.loads(next(line for line in FACTS.read_text().splitlines() if '"kv_avail_gib": 57.5,' in line))
    spec = spec_of(row["model"])
    assert spec is not None
    assert length_of(row | {"kv_tokens": 9_986}, spec) == 9_986
    assert length_of(row | {"kv_tokens": None}, spec) == spec.max_model_len
    assert length_of(row | {"kv_tokens": 9_986, "outcome": "fail_kv_lt_maxlen"}, spec) == spec.max_model_len


def test_an_absent_version_is_the_newest_that_runs_on_the_card() -> None:
    row = json.loads(FACTS.read_text().splitlines()[0]) | {"vllm_version": None, "gpu_mem_gib": None, "tp": 1}
    row |= {"model": "facebook/opt-6.7b", "dtype": "float16", "quantization": None, "kv_dtype": None}
    assert predict(row | {"gpu": "V100-16GB", "gpu_memory_utilization": 0.95}).boots
    assert predict(row | {"gpu": "RTX 4090"}).boots


def test_a_month_stands_for_the_newest_release_in_its_middle() -> None:
    assert released("V0 (Jan-2025)") == "0.6.6"
    assert released("V1 (Feb-2025)") == "0.7.2"
    assert released("0.29/0.30") == "0.29"
    assert released("nightly") is released("") is None


def test_a_start_of_an_unknown_version_is_judged_by_its_verdict_only() -> None:
    row = json.loads(next(line for line in FACTS.read_text().splitlines() if '"kv_avail_gib": 57.5,' in line))
    known, unknown = predict(row), predict(row | {"vllm_version": None})
    assert known.kv_error is not None
    assert unknown.is_judged
    assert not unknown.is_stated
    assert unknown.kv_error is None
    assert score([known, unknown], pinned=True).starts == score([known, unknown]).starts + 1 == 2
    assert score([known, unknown]).kv_cells == 1
    assert predict(row | {"vllm_version": "nightly"}).why == "the version is neither a number nor a month"


def test_starts_that_tell_too_little_count_in_a_line_of_their_own() -> None:
    row = json.loads(FACTS.read_text().splitlines()[0])
    pair = [predict(row | {"max_model_len": length, "gpu_memory_utilization": None}) for length in (1024, None)]
    assert (score([*pair, *read(FACTS)]).starts, score([*pair, *read(FACTS)], pinned=True).starts) == (
        score(read(FACTS)).starts + 1,
        score(read(FACTS), pinned=True).starts + 2,
    )


def test_a_cell_counts_once() -> None:
    cases = read(FACTS)
    assert len(cells(cases)) < len(cases)
    assert score([*cases, *cases]).kv_mean == pytest.approx(score(cases).kv_mean)
