"""A GGUF file to a `ModelSpec`: its metadata is put into the keys of a Hugging Face config, which is read as one.

Keys and their meaning: gguf-py/gguf/constants.py and convert_hf_to_gguf.py of https://github.com/ggml-org/llama.cpp
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from vllm_probe.core.errors import AmbiguousModel, UnsupportedModel
from vllm_probe.core.model import ModelSpec, Pooling
from vllm_probe.core.values import JsonValue
from vllm_probe.models.config import RERANKER, parse_config
from vllm_probe.models.facts import MAX_LAYERS, Facts
from vllm_probe.models.gguf import GgufFile, is_first_part, model_name, read_gguf
from vllm_probe.models.gguf_keys import KEYS, MODEL_TYPES
from vllm_probe.models.gguf_layers import layer_config
from vllm_probe.models.safetensors import TensorInfo

SUFFIX = ".gguf"
_PROJECTOR = "mmproj"  # how files of image towers begin (llama.cpp, docs/multimodal.md)
_RANK = 4
_POOLINGS: dict[int, Pooling] = {1: "mean", 2: "cls", 3: "last"}
_PLAIN = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_END_TOKENS = ("eos", "eot", "eom")
_SIGMOID = 2  # how DeepSeek-V3 weighs its experts

_PARTS = (
    ("experts", re.compile(r"\.ffn_(?:gate|up|down|gate_up)_exps\.weight$")),
    ("feed_forward", re.compile(r"\.ffn_(?:gate|up|down)(?:_shexp)?\.weight$")),
    ("attention", re.compile(r"\.(?:attn_(?:q|k|v|qkv|output|gate|q_[ab]|kv_[ab](?:_mqa)?|[kv]_b)|ssm_\w+)\.weight$")),
    ("lm_head", re.compile(r"^output\.weight$")),
)
_LAYER = re.compile(r"blk\.(\d{1,6})\.")


def find_gguf(folder: Path) -> Path | None:
    """The only GGUF model in `folder`, the first part of a split one, an image tower left out; null without any.

    Raises:
        AmbiguousModel: there are several.
    """
    models = (path for path in folder.glob(f"*{SUFFIX}") if not path.name.startswith(_PROJECTOR))
    found = sorted(path for path in models if is_first_part(path))
    if len(found) > 1:
        listed = ", ".join(path.name for path in found[:8])
        raise AmbiguousModel(
            f"{folder} holds {len(found)} GGUF models: {listed}",
            candidates=tuple(str(path) for path in found[:8]),
            hint="give one of the files as the model",
        )
    return found[0] if found else None


def read_gguf_model(path: Path) -> ModelSpec:
    """The model in the file at `path`, named after the file; its weight bytes are the sum of its tensor table.

    The number format is that of most bytes; weights of another are computed in bfloat16, which has their range.
    Pooling is the file's own; without one encoders pool their first token.

    Raises:
        UnreadableFile, InvalidModel, UnsupportedModel: as `gguf.read_gguf` and `config.parse_config`.
    """
    file, source = read_gguf(path), str(path)
    architecture = str(file.metadata.get("general.architecture", ""))
    if architecture not in MODEL_TYPES:
        known = ", ".join(sorted(MODEL_TYPES))
        raise UnsupportedModel(
            f"{source}: the architecture {architecture[:80]!r} is not known", hint=f"architectures that are: {known}"
        )
    prefix = f"{architecture}."
    own = {key.removeprefix(prefix): value for key, value in file.metadata.items() if key.startswith(prefix)}
    facts = Facts(own, source)
    config = _config(facts, file, architecture)
    spec = parse_config(
        config,
        name=model_name(path),
        source=source,
        generation={"eos_token_id": [file.metadata.get(f"tokenizer.ggml.{end}_token_id") for end in _END_TOKENS]},
        stored_dtype=_dtype(file.tensors),
    )
    spec = _pooled(spec, facts)
    tensors = _loaded(file.tensors, spec)
    return replace(
        spec,
        quantization="gguf",
        stored_bits=_stored_bits(tensors),
        weight_bytes=sum(tensor.nbytes for tensor in tensors.values()),
        num_parameters=sum(tensor.num_elements for tensor in tensors.values()) or None,
        weights_path=str(path.resolve()),
        source=f"GGUF metadata and tensor table of {source}",
    )


def _config(facts: Facts, file: GgufFile, architecture: str) -> dict[str, JsonValue]:
    """The config that a checkpoint of this shape would have."""
    layers, tensors = _num_layers(facts), file.tensors
    config = {name: _plain(facts.values[key]) for key, name in KEYS.items() if facts.values.get(key, 0) != 0}
    model_type = _model_type(facts, file, architecture)
    config |= layer_config(facts, layers, model_type)
    config |= {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "vocab_size": _rows(facts, file, "token_embd.weight"),
        "type_vocab_size": _rows(facts, file, "token_types.weight") if "token_types.weight" in tensors else 0,
        "max_position_embeddings": facts.count("context_length"),
        "rope_parameters": {
            "rope_type": facts.word("rope.scaling.type").replace("none", "") or "default",
            "factor": facts.number("rope.scaling.factor", 1),
        },
        "tie_word_embeddings": "output.weight" not in tensors,
        "use_bidirectional_attention": facts.values.get("attention.causal") is False,
        "use_sliding_window": "sliding_window" in config,
    }
    flags = {"attention_bias": "attn_q.bias", "use_qk_norm": "attn_q_norm.weight"}
    config |= {flag: True for flag, end in flags.items() if any(name.endswith(end) for name in tensors)}
    keys = {name.removesuffix("attn_k.weight") for name in tensors if name.endswith("attn_k.weight")}
    if any(f"{layer}attn_v.weight" not in tensors for layer in keys):
        config["attention_k_eq_v"] = True
    return config | _own_ways(facts, config)


def _plain(value: JsonValue) -> JsonValue:
    """A 32-bit number in the digits that it was written with; of a list of equals one."""
    if isinstance(value, list) and value and all(each == value[0] for each in value):
        value = value[0]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _own_ways(facts: Facts, config: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """What files of one architecture say in a way of their own, or leave to llama.cpp (src/llama-model.cpp)."""
    if own := _OWN_WAYS.get(str(config["model_type"])):
        return own(facts, config)
    if "linear_num_value_heads" in config:
        return {"linear_value_head_dim": facts.count("ssm.inner_size") // facts.count("ssm.time_step_rank")}
    return {}


def _roberta(facts: Facts, _: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Rows up to the padding token's are cut off."""
    return {"pad_token_id": 1, "max_position_embeddings": facts.count("context_length") + 2}


def _granite(facts: Facts, _: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Experts and positions of a Granite 4, which without experts has its shared one alone."""
    experts, shared = facts.values.get("expert_count") or None, facts.maybe("expert_shared_feed_forward_length")
    alone = {"intermediate_size": shared, "shared_expert_intermediate_size": None} if shared and not experts else {}
    rotated = "rope" if facts.flag("rope.scaling.finetuned") else "nope"
    return {"num_local_experts": experts, **alone, "position_embedding_type": rotated}


_OWN_WAYS: dict[str, Callable[[Facts, dict[str, JsonValue]], dict[str, JsonValue]]] = {
    "roberta": _roberta,
    "xlm-roberta": _roberta,
    "granitemoehybrid": _granite,
    "nemotron_h": lambda facts, _: {
        "moe_shared_expert_intermediate_size": facts.maybe("expert_shared_feed_forward_length")
    },
    "llama4_text": lambda facts, _: {
        "attention_chunk_size": 8192,
        "intermediate_size": facts.count("expert_feed_forward_length"),
    },
    "gpt_oss": lambda _, config: {"sliding_window_pattern": 2} | config,
    "falcon": lambda *_: {"new_decoder_architecture": True},
    "gpt_bigcode": lambda _, config: {"multi_query": config["num_key_value_heads"] == 1},
    "ernie4_5_moe": lambda facts, _: {
        "moe_layer_start_index": facts.count("leading_dense_block_count", default=0, minimum=0)
    },
}
"""By model type; key/value heads of an older Falcon are left to a flag."""


def _model_type(facts: Facts, file: GgufFile, architecture: str) -> str:
    tokenizer = file.metadata.get("tokenizer.ggml.model")
    if architecture == "bert" and tokenizer in ("t5", "gpt2"):
        return "xlm-roberta" if tokenizer == "t5" else "roberta"
    if architecture == "llama" and facts.values.get("expert_count"):
        return "mixtral"
    if architecture == "olmo2" and facts.values.get("attention.sliding_window"):
        return "olmo3"
    if architecture == "deepseek2" and facts.values.get("expert_gating_func") != _SIGMOID:
        return "deepseek_v2"
    return MODEL_TYPES[architecture]


def _num_layers(facts: Facts) -> int:
    """Layers without those that predict further tokens, which come last."""
    layers = facts.count("block_count") - facts.count("nextn_predict_layers", default=0, minimum=0)
    if not 1 <= layers <= MAX_LAYERS:
        raise facts.invalid(f"block_count leaves {layers} layers")
    return layers


def _rows(facts: Facts, file: GgufFile, name: str) -> int:
    tensor = file.tensors.get(name)
    if tensor is None or len(tensor.shape) != 2:
        raise facts.invalid(f"there is no table {name}")
    return tensor.shape[0]


def _dtype(tensors: dict[str, TensorInfo]) -> str:
    sizes = Counter[str]()
    for tensor in tensors.values():
        sizes[tensor.dtype] += tensor.nbytes
    most = sizes.most_common(1)
    return _PLAIN.get(most[0][0], "bfloat16") if most else "bfloat16"


def _pooled(spec: ModelSpec, facts: Facts) -> ModelSpec:
    """`spec` with the pooling of the file; a reranker pools one token and is not normalised."""
    kind = facts.values.get("pooling_type", 0)
    if kind not in (0, _RANK, *_POOLINGS):
        raise facts.invalid(f"pooling_type {kind!r:.20} is not known")
    if kind in _POOLINGS or (spec.is_encoder and spec.task == "generate"):
        pooling = _POOLINGS.get(kind, "mean")
        return replace(spec, task="embed", ties_embeddings=True, pooling=pooling, normalizes=True)
    if kind == _RANK:
        pooling, stem = "cls" if spec.is_encoder else "last", re.sub("(?:Model|ForCausalLM)$", "", spec.architecture)
        spec = replace(spec, architecture=f"{stem}{RERANKER}", pooling=pooling)
        return replace(spec, task="embed", ties_embeddings=True, normalizes=False)
    return spec


def _loaded(tensors: dict[str, TensorInfo], spec: ModelSpec) -> dict[str, TensorInfo]:
    """All tensors but layers behind the last one, and the output projection where none is needed."""
    found = {}
    for name, tensor in tensors.items():
        layer = _LAYER.match(name)
        if (layer is None or int(layer[1]) < spec.num_layers) and not (
            spec.task == "embed" and name == "output.weight"
        ):
            found[name] = tensor
    return found


def _stored_bits(tensors: dict[str, TensorInfo]) -> dict[str, float]:
    sizes: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, tensor in tensors.items():
        tied = "output.weight" not in tensors and name == "token_embd.weight"
        part = "lm_head" if tied else next((part for part, pattern in _PARTS if pattern.search(name)), None)
        if part and tensor.num_elements:
            sizes[part][0] += tensor.nbytes
            sizes[part][1] += tensor.num_elements
    return {part: 8 * nbytes / count for part, (nbytes, count) in sizes.items()}
