"""Every catalogue entry is a whole model in the form that a folder would give."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vllm_probe.models import catalogue
from vllm_probe.models.config import parse_config

SHARED = Path(__file__).parents[4] / "shared" / "data" / "models"


def test_the_catalogue_names_its_models() -> None:
    assert set(catalogue.entries()) == {
        "Qwen3-Embedding-0.6B",
        "all-MiniLM-L6-v2",
        "bge-m3",
        "Qwen3-0.6B",
        "Qwen3-8B",
        "GLM-5.3",
    }


@pytest.mark.parametrize("name", catalogue.entries())
def test_an_entry_states_what_the_defaults_would_hide(name: str) -> None:
    spec, stated = catalogue.load(name), json.loads(catalogue.entries()[name].read_text())
    assert spec.name == name
    assert spec.repository is not None
    assert spec.repository.endswith(f"/{name}")
    assert spec.source.startswith(spec.repository)
    assert {"norm_eps", "activation"} <= set(stated)
    assert (spec.num_positions > 0) == spec.is_encoder == (spec.rope_theta is None)
    assert (spec.pooling is None) == (spec.task == "generate") == (not spec.normalizes)
    assert (spec.weights_path, spec.weight_bytes, spec.num_parameters) == (None, None, None)


def test_an_alias_is_lower_case_and_belongs_to_one_model() -> None:
    aliases = [alias for labels in catalogue.labels().values() for alias in labels.aliases]
    assert aliases == [alias.lower() for alias in dict.fromkeys(aliases)]
    assert not set(aliases) & {name.lower() for name in catalogue.entries()}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the collection of public configs is not beside the repository")
@pytest.mark.parametrize("name", catalogue.entries())
def test_an_entry_agrees_with_the_public_config(name: str) -> None:
    spec = catalogue.load(name)
    config: dict[str, Any] = json.loads((SHARED / f"{name}.json").read_text())
    stated = parse_config(config, name=name, source=spec.source)
    pooling = config.get("_pooling", {}).get("type", "").removesuffix("_token")
    assert (spec.pooling or "") == pooling
    sentence: dict[str, Any] = {
        "task": spec.task,
        "pooling": spec.pooling,
        "normalizes": spec.normalizes,
        "prompts": spec.prompts,
    }
    limit = min(spec.max_model_len, stated.max_model_len)
    eos = tuple(dict.fromkeys((*stated.eos_token_ids, *spec.eos_token_ids)))
    assert spec == replace(stated, **sentence, max_model_len=limit, eos_token_ids=eos, repository=spec.repository)
