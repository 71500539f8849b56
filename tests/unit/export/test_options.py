"""The options of each version, and how they stand to vLLM's own."""

import json
from dataclasses import replace
from importlib import resources
from typing import Any

import pytest

from tests.unit.export.cases import by_vendor, made
from tests.unit.negotiate.cases import EMBEDDING, QWEN3_8B
from vllm_probe.core.errors import BadUsage
from vllm_probe.export.options import Setting, settings_of, table, version_of


def options(vendor: str = "nvidia", spec: Any = EMBEDDING, **wanted: Any) -> dict[str, Setting]:
    return {each.option: each for each in settings_of(made(vendor, spec, **wanted)).options}


def carriers() -> set[str]:
    """Every option that negotiate says carries a value."""
    laws = resources.files("vllm_probe.negotiate.laws")
    rows = json.loads((laws / "parameters.json").read_text()).values()
    found = {word for row in rows for word in row["vllm"].split() if word.startswith("--")}
    methods = json.loads((laws / "support.json").read_text())["vllm"]["methods"].values()
    found |= {row["option"].split()[0] for each in methods for row in each.values() if "option" in row}
    return {name.removeprefix("--") for name in found}


def test_every_option_that_negotiate_names_is_in_the_table_with_its_default() -> None:
    assert carriers() <= set(table()["options"])
    assert all("default" in row for row in table()["options"].values())


@pytest.mark.parametrize(
    ("version", "has", "lacks"),
    [
        ("0.8.5", {"task", "override-pooler-config"}, {"runner", "pooler-config", "kv-cache-memory-bytes"}),
        ("0.10.1", {"runner", "override-pooler-config"}, {"task", "pooler-config", "kv-cache-memory-bytes"}),
        ("0.10.2", {"runner", "override-pooler-config", "kv-cache-memory-bytes"}, {"task", "pooler-config"}),
        ("0.11", {"runner", "pooler-config", "kv-cache-memory-bytes"}, {"task", "override-pooler-config"}),
        ("0.33.0", {"runner", "pooler-config", "kv-cache-memory-bytes"}, {"task", "override-pooler-config"}),
    ],
)
def test_a_version_gets_the_words_that_it_knows(version: str, has: set[str], lacks: set[str]) -> None:
    found = options(engine_version=version)
    assert has <= set(found)
    assert not lacks & set(found)
    runner = found.get("runner") or found["task"]
    assert runner.value == ("pooling" if "runner" in found else "embed")


def test_what_a_version_cannot_take_is_said() -> None:
    notes = settings_of(made("nvidia", EMBEDDING, engine_version="0.10.0")).notes
    assert notes == ("vLLM 0.10.0 has no --kv-cache-memory-bytes",)


@pytest.mark.parametrize(("version", "word"), [("0.40.0", "up to vLLM 0.33.0"), ("0.7.0", "from vLLM 0.8.5 on")])
def test_a_version_outside_the_table_is_said(version: str, word: str) -> None:
    assert any(word in note for note in settings_of(made("nvidia", QWEN3_8B, engine_version=version)).notes)


def test_an_option_that_is_not_in_the_table_is_left_out_and_said() -> None:
    config = made("nvidia", QWEN3_8B)
    hostile = replace(config.decisions[0], passed_on="--trust-remote-code")
    found = settings_of(replace(config, decisions=(hostile, *config.decisions[1:])))
    assert "trust-remote-code" not in {each.option for each in found.options}
    assert "--trust-remote-code is not among the options passed on" in found.notes


@pytest.mark.parametrize(
    ("vendor", "option", "wanted", "default"),
    [
        ("nvidia", "max-num-batched-tokens", {}, 8192),
        ("nvidia", "max-num-seqs", {}, 1024),
        ("nvidia", "max-num-seqs", {"device_memory_bytes": 24 << 30}, 256),
        ("nvidia", "max-num-batched-tokens", {"device_memory_bytes": 24 << 30}, 2048),
        ("nvidia", "max-num-batched-tokens", {"device_memory_bytes": 180 << 30}, 16384),
        ("nvidia", "max-num-batched-tokens", {"device_memory_bytes": 180 << 30, "engine_version": "0.23"}, 8192),
        ("nvidia", "gpu-memory-utilization", {"engine_version": "0.19.1"}, 0.9),
        ("nvidia", "gpu-memory-utilization", {"engine_version": "0.20.0"}, 0.92),
        ("cpu", "max-num-seqs", {}, 128),
        ("cpu", "block-size", {"pins": {"block_size": 64}}, 128),
        ("ascend", "block-size", {"pins": {"block_size": 128}}, 128),
        ("intel", "block-size", {"pins": {"block_size": 32}}, 64),
        ("amd", "block-size", {"pins": {"block_size": 16}}, 16),
    ],
)
def test_what_vllm_would_take_by_itself(vendor: str, option: str, wanted: dict[str, Any], default: Any) -> None:
    found = options(vendor, QWEN3_8B if vendor == "nvidia" else EMBEDDING, **wanted)[option]
    assert found.default == default
    assert found.kept == (found.value == default)


def test_a_default_by_memory_is_unknown_where_the_memory_is() -> None:
    config = made("nvidia", QWEN3_8B)
    config = replace(config, budget=replace(config.budget, device_total_bytes=None))
    found = {each.option: each for each in settings_of(config).options}
    assert found["max-num-seqs"].default is None
    assert not found["max-num-seqs"].kept


def test_the_models_own_limit_and_pooling_are_vllms_own() -> None:
    found = options()
    assert found["max-model-len"].kept
    assert found["pooler-config"].kept
    assert not options(pins={"max_model_len": 1024})["max-model-len"].kept


@by_vendor
def test_threads_are_for_cpus_alone_and_older_versions_size_their_cache_by_a_variable(vendor: str) -> None:
    new, old = (settings_of(made(vendor, EMBEDDING, engine_version=each)).env for each in ("0.20.0", "0.19.0"))
    is_cpu = vendor == "cpu"
    assert ("OMP_NUM_THREADS" in new) == ("VLLM_CPU_KVCACHE_SPACE" in old) == is_cpu
    assert "VLLM_CPU_KVCACHE_SPACE" not in new


@pytest.mark.parametrize("text", ["", "main", "1", "0.", "0.99999", "-1.0"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(BadUsage):
        version_of(text)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0.33", (0, 33, 0)), ("v0.9.1", (0, 9, 1)), ("0.32.0+cpu", (0, 32, 0)), ("0.19.2rc1.dev3", (0, 19, 2))],
)
def test_a_version_has_three_numbers(text: str, numbers: tuple[int, ...]) -> None:
    assert version_of(text) == numbers
