"""A Hugging Face `config.json`, as transformers 4 and 5 write it, to a `ModelSpec`."""

import re

from vllm_probe.core.errors import UnsupportedModel
from vllm_probe.core.model import LayerInputs, ModelSpec, MoeShape, Pooling
from vllm_probe.core.values import JsonValue
from vllm_probe.models.attention import read_groups, read_heads, read_latent, read_linear
from vllm_probe.models.derived import renamed
from vllm_probe.models.facts import MAX_LAYERS, Facts
from vllm_probe.models.families import ARCHITECTURES, has_rotation, learned_positions
from vllm_probe.models.quantization import quantized
from vllm_probe.models.unstated import check_sizes, default_sizes, reason_against
from vllm_probe.models.vision import tower_parameters, uncounted

RERANKER = "ForSequenceClassification"
"""How the class of a model ends that scores a text, or a pair of them, from its pooled state."""

_SCORER = re.compile(r"(?:^|/|--)qwen3-reranker-[\d.]+b[\w.-]*(?:/|$)", re.IGNORECASE)
_SCORE_TOKENS = ("no", "yes")  # https://huggingface.co/Qwen/Qwen3-Reranker-8B; nothing in its files says so

_EMBEDDER = re.compile(rf"(?<!LMHead)(?<!VLChat)(?<!Omni)Model$|{RERANKER}$")
_TEXT_PARTS = ("text_config", "llm_config")
_DECODERS = ("ForCausalLM", "LMHeadModel", "Model", "TextModel", "ForConditionalGeneration")
_ASSUMED_LEN = 2048  # `_get_and_verify_max_len` of vllm/config/model.py, 0.32
_POOLINGS: dict[str, Pooling] = {"avg": "mean", "cls": "cls", "last": "last"}
_DTYPES = ("float32", "bfloat16", "float16")


def parse_config(
    config: JsonValue, *, name: str, source: str, generation: JsonValue = None, stored_dtype: str = "float32"
) -> ModelSpec:
    """The model that `config` describes.

    Pooling is vLLM's for a checkpoint without sentence-transformers files: first token for encoders, last token for a
    decoder without a language-model head (`Qwen3Model`), both normalised (vllm/model_executor/models/bert.py,
    roberta.py and adapters.py, 0.32). Qwen3-Reranker, whose config is that of a generator, is known by its name.

    Args:
        config: value of `config.json`; of a multimodal one the text part is used.
        name: canonical name of the model.
        source: where the config is from, for messages and the spec.
        generation: value of `generation_config.json`.
        stored_dtype: number format of the weights, for a config that states none.

    Raises:
        InvalidModel: a value is missing, out of range or contradicts another.
        UnsupportedModel: an architecture or variant whose shape this release cannot express.
    """
    merged, is_nested = _text_of(config)
    facts, traits, architecture = _architecture(merged, source, is_nested=is_nested)
    scores = architecture == "Qwen3ForCausalLM" and any(map(_SCORER.search, (name, source)))
    architecture = architecture.replace("ForCausalLM", RERANKER) if scores else architecture
    encodes, rotates = "encoder" in traits, has_rotation(facts, traits)
    biased = facts.flag("linear_bias", default="biased" in traits) or (encodes and not rotates)
    embeds = encodes or (_EMBEDDER.search(architecture) is not None and "generator" not in traits)
    alone = tuple(facts.ids("feed_forward_layers")) if "feed_forward_layers" in facts.values else None
    mla = read_latent(facts) if "latent" in traits else None
    num_heads, num_kv_heads, head_dim = read_heads(facts, mla, has_groups=not encodes)
    positions, offset = learned_positions(facts, traits)
    rope = facts.part("rope_parameters", "rope_scaling")
    rope = rope.part("full_attention") if "full_attention" in rope.values else rope
    eos = (*facts.ids("eos_token_id"), *Facts(generation, source).ids("eos_token_id"))
    spec = ModelSpec(
        name=name,
        architecture=architecture,
        model_type=facts.word("model_type"),
        is_encoder=encodes or facts.flag("use_bidirectional_attention"),
        task="embed" if embeds else "generate",
        num_layers=facts.count("num_hidden_layers"),
        hidden_size=facts.count("hidden_size"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        intermediate_size=facts.count("intermediate_size", "moe_intermediate_size", minimum=0 if alone == () else 1),
        feed_forward_layers=alone,
        num_wide_layers=facts.count("num_wide_layers", default=0, minimum=0),
        layer_inputs=_layer_inputs(facts),
        is_gated=not facts.flag("is_plain", default="plain" in traits) and (rotates or not encodes),
        vocab_size=facts.count("vocab_size"),
        num_positions=positions,
        position_offset=offset,
        num_token_types=facts.count("type_vocab_size", default=2, minimum=0) if encodes else 0,
        max_model_len=_max_model_len(
            facts, Facts({}, source) if "stretched" in traits else rope, positions - offset, is_encoder=encodes
        ),
        dtype=_dtype(facts, stored_dtype),
        ties_embeddings=embeds or facts.flag("tie_word_embeddings"),
        has_qkv_bias="half-biased" in traits or (not biased and facts.flag("attention_bias")),
        has_bias=biased,
        has_qk_norm=facts.flag("use_qk_norm"),
        has_output_gate=facts.flag("attn_output_gate"),
        activation=facts.word("hidden_act", "hidden_activation", default="gelu" if encodes else "silu"),
        norm_eps=_norm_eps(facts, is_encoder=encodes),
        rope_theta=rope.number("rope_theta", facts.number("rope_theta", 1e4)) if rotates else None,
        rope_type=rope.word("rope_type", "type", default="default"),
        rope_stretch=_beyond(rope) if "stretched" in traits else 1.0,
        eos_token_ids=() if encodes else tuple(dict.fromkeys(eos)),
        moe=_moe(facts, is_parallel="parallel" in traits),
        mla=mla,
        linear=read_linear(facts),
        attention_groups=() if encodes else read_groups(facts),
        pooling=_pooling(facts, traits) if embeds else None,
        normalizes=embeds and not architecture.endswith(RERANKER),
        score_tokens=_SCORE_TOKENS if scores else (),
        is_matryoshka=facts.flag("is_matryoshka") or bool(facts.items("matryoshka_dimensions")),
        vision_parameters=tower_parameters(architecture, facts),
        unknown=_unstated(facts, config, traits, architecture),
        source=source,
    )
    return quantized(spec, facts)


def _text_of(config: JsonValue) -> tuple[JsonValue, bool]:
    """`config` with the values of its text part at the top, and whether it has one.

    A Qwen that also speaks has its text part, and the towers, in the part that thinks, which is all that vLLM loads.
    """
    whole = config if isinstance(config, dict) else {}
    thinker = whole.get("thinker_config")
    whole = {**whole, **thinker} if isinstance(thinker, dict) else whole
    for part in _TEXT_PARTS:
        if isinstance(text := whole.get(part), dict):
            architectures = config.get("architectures") if isinstance(config, dict) else None
            return {**whole, **text, "architectures": architectures}, True
    return config, False


def _architecture(config: JsonValue, source: str, *, is_nested: bool) -> tuple[Facts, set[str], str]:
    stated = Facts(config, source)
    if not (kind := stated.word("model_type")):
        raise stated.invalid("model_type is missing or not text")
    if kind not in ARCHITECTURES:
        raise _unsupported(source, reason_against(kind) or f"the model type {kind[:80]!r} is not known")
    stem, traits, defaults = ARCHITECTURES[kind]
    sizes = default_sizes(kind) if is_nested else {}
    endless = {"max_position_embeddings": _ASSUMED_LEN} if "endless" in traits else {}
    facts = Facts(renamed(kind, config, source), source, {**sizes, **endless, **defaults})
    if is_nested:
        check_sizes(facts)
    if facts.count("num_hidden_layers") > MAX_LAYERS:
        raise facts.invalid(f"num_hidden_layers is over {MAX_LAYERS}")
    encodes = "encoder" in traits
    tails = ("Model", "ForMaskedLM") if encodes else _DECODERS
    tails = (*tails, RERANKER)
    architecture = str((facts.items("architectures") or [stem + tails[0]])[0])
    if not is_nested and architecture.lower() not in [(stem + tail).lower() for tail in ("", *tails)]:
        raise _unsupported(source, f"the architecture {architecture[:80]!r} of model type {kind!r} is not known")
    if facts.word("position_embedding_type", default="absolute") != "absolute" or facts.flag("is_decoder"):
        raise _unsupported(source, "an encoder with relative positions or causal attention")
    if facts.count("word_embed_proj_dim", default=facts.count("hidden_size")) != facts.count("hidden_size"):
        raise _unsupported(source, "token embeddings of another width than the layers")
    if facts.values.get("hidden_size_per_layer_input") and not facts.flag("has_layer_inputs"):
        raise _unsupported(source, "an embedding table for each layer")
    return facts, traits, architecture


def _pooling(facts: Facts, traits: set[str]) -> Pooling:
    """What vLLM pools without sentence-transformers files, or what the config says of a type that must (config.py)."""
    if "pooled" not in traits:
        return "cls" if "encoder" in traits else "last"
    stated = facts.word("pooling")
    if stated not in _POOLINGS:
        raise facts.invalid(f"pooling {stated[:40]!r} is none of {', '.join(_POOLINGS)}")
    return _POOLINGS[stated]


def _unstated(facts: Facts, config: JsonValue, traits: set[str], architecture: str) -> dict[str, str]:
    """What the config does not tell: the longest input of a model without positions, the size of a tower."""
    found, left_out = {}, uncounted(architecture, facts)
    stated = Facts(config, facts.source).maybe("max_position_embeddings", "seq_length", "model_max_length")
    if "endless" in traits and not stated:
        limit = f"{_ASSUMED_LEN} tokens, as vLLM takes, unless --max-model-len says more"
        found["max_model_len"] = f"the config states no limit; {limit}"
    return found | ({"vision_parameters": left_out} if left_out else {})


def _layer_inputs(facts: Facts) -> LayerInputs | None:
    if not facts.flag("has_layer_inputs"):
        return None
    rows = facts.count("vocab_size_per_layer_input", default=facts.count("vocab_size"))
    return LayerInputs(vocab_size=rows, width=facts.count("hidden_size_per_layer_input"))


def _unsupported(source: str, reason: str) -> UnsupportedModel:
    known = ", ".join(sorted(ARCHITECTURES))
    return UnsupportedModel(f"{source}: {reason}", hint=f"model types that can be read: {known}")


def _max_model_len(facts: Facts, rope: Facts, learned: int, *, is_encoder: bool) -> int:
    """As vLLM derives it: linear and dynamic scaling stretch the positions, others are written stretched.

    A decoder's `model_max_length` goes before its positions (vllm/transformers_utils/model_arch_config_convertor.py).
    """
    keys = ("max_position_embeddings",) if is_encoder else ("model_max_length", "max_position_embeddings")
    stretch = rope.number("factor", 1) if rope.word("rope_type", "type") in ("linear", "dynamic") else 1
    positions = int((learned if is_encoder and learned else facts.count(*keys)) * stretch)
    if positions < 1:
        raise facts.invalid("no position is left for a token")
    return positions


def _norm_eps(facts: Facts, *, is_encoder: bool) -> float:
    other = facts.number("layer_norm_eps", 1e-12 if is_encoder else 1e-6)
    return other if is_encoder else facts.number("rms_norm_eps", other)


def _beyond(rope: Facts) -> float:
    """Rows that linear scaling gives the rotary table for each position of the config."""
    return max(1.0, rope.number("factor", 1)) if rope.word("rope_type", "type") == "linear" else 1.0


def _dtype(facts: Facts, stored: str) -> str:
    dtype = facts.word("dtype", "torch_dtype", default=stored).removeprefix("torch.")
    if dtype not in _DTYPES:
        raise facts.invalid(f"dtype {dtype[:40]!r} is none of {', '.join(_DTYPES)}")
    return dtype


def _moe(facts: Facts, *, is_parallel: bool) -> MoeShape | None:
    experts = facts.maybe("n_routed_experts", "num_experts", "num_local_experts")
    if experts is None:
        return None
    steps = ("moe_layer_freq", "decoder_sparse_step", "interleave_moe_layer_step")
    if any(facts.values.get(step, 1) != 1 for step in steps):
        raise _unsupported(facts.source, "layers that alternate between dense and sparse")
    width = facts.count("moe_intermediate_size", "intermediate_size")
    shared = facts.count("n_shared_experts", default=0, minimum=0) * width
    parallel = ("parallel_intermediate_size", "intermediate_size")
    beside = parallel if is_parallel else ("shared_expert_intermediate_size", "shared_intermediate_size")
    shared = facts.count(*beside, default=shared, minimum=0)
    dense = len(facts.items("mlp_only_layers")) or facts.items("mlp_layer_types").count("dense")
    dense = facts.count("num_dense_layers", default=dense, minimum=0)
    moe = MoeShape(
        num_experts=experts,
        num_active=facts.count("num_experts_per_tok", "top_k_experts"),
        num_shared=shared // width,
        expert_intermediate=width,
        num_dense_layers=facts.count("first_k_dense_replace", default=dense, minimum=0),
    )
    if moe.num_active > moe.num_experts or moe.num_dense_layers > facts.count("num_hidden_layers") or shared % width:
        raise facts.invalid("experts, their widths or dense layers contradict each other")
    return moe
