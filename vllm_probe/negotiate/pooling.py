"""Step 3: how token states become the vector or the score of a text."""

import json

from vllm_probe.core.values import JsonValue
from vllm_probe.negotiate.case import Case

_SCORES = "ForSequenceClassification"
_OF_VLLM = {"NewModel": "GteNewModel", "NewForSequenceClassification": "GteNewForSequenceClassification"}
"""Classes that vLLM has under another name, docs/models/supported_models.md of vLLM: the GTE encoders."""


def pooling_of(case: Case) -> tuple[dict[str, JsonValue] | None, str, str]:
    """The pooling, null for a generator, the rule behind it, and the option where it is another than the usual one.

    A reranker keeps the head and the activation that vLLM gives it; told to pool, it would answer with other numbers.
    """
    spec = case.spec
    if spec.pooling is None:
        return None, "a generator pools nothing", ""
    value: dict[str, JsonValue] = {"type": spec.pooling, "normalize": spec.normalizes}
    rule, option = "as the checkpoint was trained", ""
    if spec.score_tokens:
        rule = f"a generator that scores a pair by its tokens {' and '.join(spec.score_tokens)}"
        option = f"--hf-overrides {_scoring(spec.architecture, spec.score_tokens)}"
    elif spec.architecture in _OF_VLLM:
        known = _OF_VLLM[spec.architecture]
        rule = f"as the checkpoint was trained, which vLLM reads; it knows {spec.architecture} as {known}"
        option = f"--hf-overrides {json.dumps({'architectures': [known]}, separators=(',', ':'))}"
    elif spec.architecture.endswith(_SCORES):
        option = "not passed on: the engine scores with the head of the checkpoint"
    return value, rule, option if case.request.engine == "vllm" else ""


def _scoring(architecture: str, tokens: tuple[str, ...]) -> str:
    """What vLLM must be told of such a generator: examples/pooling/score/qwen3_reranker_offline.py of vLLM."""
    overrides = {
        "architectures": [architecture],
        "classifier_from_token": list(tokens),
        "is_original_qwen3_reranker": True,
    }
    return json.dumps(overrides, separators=(",", ":"))
