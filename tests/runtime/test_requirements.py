"""The linears that are counted for a model are those that transformers builds from its config."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from tests.unit.models.families import CONFIGS
from tests.unit.models.hybrid_configs import HYBRIDS
from tests.unit.models.more_families import DECODERS, ENCODERS, TOWERS
from vllm_probe.models.config import parse_config
from vllm_probe.negotiate.requirements import analyse

SHARED = Path(__file__).parents[3] / "shared" / "data" / "models"
RENAMED = {"gemma3": "gemma3_text", "kimi_k2": "deepseek_v3"}
INCOMPLETE = ("GLM-4.7-Flash", "embeddinggemma-300m")


def built_parameters(config: dict[str, Any]) -> int:
    """Parameters of the transformers model of `config` without pooler, built without memory."""
    text = {**config, **config.get("text_config", {})}
    for key in ("quantization_config", "architectures", "text_config", "vision_config", "audio_config"):
        text.pop(key, None)
    kind = text.pop("model_type")
    made = transformers.AutoConfig.for_model(RENAMED.get(kind, kind), **text)
    with torch.device("meta"):
        encodes = kind in ("bert", "xlm-roberta")
        model = (transformers.AutoModel if encodes else transformers.AutoModelForCausalLM).from_config(made)
    return sum(value.numel() for name, value in model.named_parameters() if not name.startswith("pooler."))


@pytest.mark.skipif(not SHARED.is_dir(), reason="the collection of public configs is not beside the repository")
@pytest.mark.parametrize("path", sorted(SHARED.glob("*.json")), ids=lambda path: path.stem)
def test_a_model_has_as_many_parameters_as_transformers_builds(path: Path) -> None:
    if path.stem in INCOMPLETE:
        pytest.skip("the public copy of this config is not whole")
    config = {key: value for key, value in json.loads(path.read_text()).items() if not key.startswith("_")}
    need = analyse(parse_config(config, name=path.stem, source=path.name))
    spec = need.spec  # one that scores by two rows of the output projection keeps none of it
    scores = spec.vocab_size * spec.hidden_size if spec.score_tokens and not config["tie_word_embeddings"] else 0
    assert need.computed_parameters == pytest.approx(built_parameters(config) - scores, rel=3e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_model_type_beyond_the_catalogue_has_as_many_parameters_as_transformers_builds(name: str) -> None:
    config = CONFIGS[name]
    spec = parse_config(config, name=name, source=name)
    made = transformers.AutoConfig.for_model(**{key: value for key, value in config.items() if key != "architectures"})
    kind = transformers.AutoModelForImageTextToText if "vision_config" in config else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        built = {name: value.numel() for name, value in kind.from_config(made).named_parameters()}
    tower = sum(count for name, count in built.items() if ".visual." in name)
    assert analyse(spec).computed_parameters == pytest.approx(sum(built.values()) - tower, rel=3e-4)
    assert spec.vision_parameters == pytest.approx(tower, rel=3e-4)


@pytest.mark.parametrize("name", [*DECODERS, *HYBRIDS, *ENCODERS])
def test_a_further_model_type_has_as_many_parameters_as_transformers_builds(name: str) -> None:
    config = (DECODERS | HYBRIDS | ENCODERS)[name]
    spec = parse_config(config, name=name, source=name)
    tokens = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    kept = {key: value for key, value in config.items() if key != "architectures"}
    made = transformers.AutoConfig.for_model(**tokens | kept)
    kind = transformers.AutoModel if name in ENCODERS else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        built = sum(value.numel() for value in kind.from_config(made).parameters())
    assert analyse(spec).computed_parameters == pytest.approx(built, rel=3e-4)


@pytest.mark.parametrize("name", TOWERS)
def test_a_tower_has_as_many_parameters_as_transformers_builds(name: str) -> None:
    spec = parse_config(TOWERS[name], name=name, source=name)
    made = transformers.AutoConfig.for_model(**{k: v for k, v in TOWERS[name].items() if k != "architectures"})
    with torch.device("meta"):
        model = transformers.AutoModelForImageTextToText.from_config(made)
    built = {key: value.numel() for key, value in model.named_parameters()}
    text = sum(count for key, count in built.items() if re.search(r"language_model|lm_head|\.text_model", key))
    assert analyse(spec).computed_parameters == pytest.approx(text, rel=3e-4)
    assert spec.vision_parameters == pytest.approx(sum(built.values()) - text, rel=3e-4)
