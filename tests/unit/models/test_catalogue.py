"""Every catalogue entry is a whole model in the form that a folder would give."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vllm_probe.models import catalogue, names
from vllm_probe.models.config import parse_config
from vllm_probe.negotiate.gemm import WeightFormat
from vllm_probe.negotiate.requirements import analyse

SHARED = Path(__file__).parents[4] / "shared" / "data" / "models"


def test_the_catalogue_names_every_model_of_the_public_configs() -> None:
    assert len(catalogue.entries()) >= 90
    assert {path.stem for path in SHARED.glob("*.json")} <= set(catalogue.entries())


@pytest.mark.parametrize("name", catalogue.entries())
def test_an_entry_states_what_the_defaults_would_hide(name: str) -> None:
    spec, stated = catalogue.load(name), json.loads(catalogue.entries()[name].read_text())
    assert spec.name == name
    assert spec.repository is not None
    assert spec.source.startswith(f"{spec.repository}: ")
    assert {"norm_eps", "activation"} <= set(stated)
    assert (spec.num_positions > 0) == (spec.rope_theta is None)
    assert sum(group.num_layers for group in spec.attention_groups) in (0, spec.num_layers)
    assert (spec.pooling is None) == (spec.task == "generate")
    assert spec.normalizes == (spec.task == "embed" and not spec.score_tokens)
    assert (spec.weights_path, spec.weight_bytes, spec.num_parameters) == (None, None, None)


@pytest.mark.parametrize("name", catalogue.entries())
def test_the_repository_of_an_entry_and_its_aliases_stand_for_it(name: str) -> None:
    labels = catalogue.labels()[name]
    for other in (name, name.upper(), str(catalogue.load(name).repository), *labels.aliases):
        found = names.find(other)
        assert found is not None
        assert found[0] == name
    assert name in names.members(labels.family)


@pytest.mark.parametrize("name", catalogue.entries())
def test_an_entry_has_the_parameters_that_its_source_states(name: str) -> None:
    spec = catalogue.load(name)
    if stated := re.search(r"([\d,]+) parameters$", spec.source):
        published = int(stated[1].replace(",", ""))
        assert analyse(spec).computed_parameters == pytest.approx(published, rel=1e-4)


@pytest.mark.parametrize("name", ["Qwen3-30B-A3B-Instruct-2507", "Qwen3-235B-A22B-Instruct-2507"])
def test_the_releases_of_july_have_the_shape_of_the_first_and_a_longer_context(name: str) -> None:
    spec, first = catalogue.load(name), catalogue.load(name.removesuffix("-Instruct-2507"))
    assert (spec.max_model_len, first.max_model_len) == (262144, 40960)
    own = {field: getattr(spec, field) for field in ("name", "max_model_len", "rope_theta", "repository", "source")}
    assert spec == replace(first, **own)


def test_a_kimi_k2_thinking_stores_its_routed_experts_in_four_bits() -> None:
    spec = catalogue.load("Kimi-K2-Thinking")
    int4 = WeightFormat(method="w4a16", width=2, bits=4.5, parts=(("attention", None, 0), ("feed_forward", None, 0)))
    assert analyse(spec).weight_bytes(int4) == pytest.approx(594e9, rel=0.01)
    assert (spec.max_model_len, spec.quantization, spec.stored_bits) == (262144, "w4a16", {"experts": 4.5})


def test_an_alias_is_lower_case_and_belongs_to_one_model() -> None:
    aliases = [alias for labels in catalogue.labels().values() for alias in labels.aliases]
    assert aliases == [alias.lower() for alias in dict.fromkeys(aliases)]
    assert not set(aliases) & {name.lower() for name in catalogue.entries()}


PARTIAL: dict[str, dict[str, Any]] = {
    "GLM-4.7-Flash": {
        "eos_token_id": [154820, 154827, 154829],
        "first_k_dense_replace": 1,
        "intermediate_size": 10240,
        "moe_intermediate_size": 1536,
        "n_routed_experts": 64,
        "n_shared_experts": 1,
        "num_experts_per_tok": 4,
        "q_lora_rank": 768,
        "rms_norm_eps": 1e-05,
        "vocab_size": 154880,
    },
    "embeddinggemma-300m": {"architectures": ["Gemma3TextModel"], "use_bidirectional_attention": True},
}
"""What the public copies of two configs lack."""


@pytest.mark.skipif(not SHARED.is_dir(), reason="the collection of public configs is not beside the repository")
@pytest.mark.parametrize("name", sorted({path.stem for path in SHARED.glob("*.json")} & {*catalogue.entries()}))
def test_an_entry_agrees_with_the_public_config(name: str) -> None:
    spec = catalogue.load(name)
    config = json.loads((SHARED / f"{name}.json").read_text()) | PARTIAL.get(name, {})
    stated = parse_config(config, name=name, source=spec.source, stored_dtype=spec.dtype)
    if "_pooling" in config:
        assert spec.pooling == config["_pooling"]["type"].removesuffix("_token")
    beside: dict[str, Any] = {
        "task": spec.task,
        "pooling": spec.pooling,
        "normalizes": spec.normalizes,
        "projections": spec.projections,
        "is_matryoshka": spec.is_matryoshka,
        "prompts": spec.prompts,
        "ties_embeddings": stated.ties_embeddings or spec.task == "embed",
        "max_model_len": min(spec.max_model_len, stated.max_model_len),
        "eos_token_ids": tuple(dict.fromkeys((*stated.eos_token_ids, *spec.eos_token_ids))),
        "repository": spec.repository,
    }
    assert spec == replace(stated, **beside)
