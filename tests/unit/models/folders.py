"""Model folders of a few hundred bytes, written in the shapes that transformers and sentence-transformers write."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from vllm_probe.core.system import Host, Platform

SIZES = {"F32": 4, "BF16": 2, "F16": 2, "I64": 8, "I32": 4, "F8_E4M3": 1}

BERT: dict[str, Any] = {
    "architectures": ["BertModel"],
    "hidden_act": "gelu",
    "hidden_size": 8,
    "intermediate_size": 16,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "model_type": "bert",
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "type_vocab_size": 2,
    "vocab_size": 32,
}
XLM_R: dict[str, Any] = BERT | {
    "architectures": ["XLMRobertaModel"],
    "layer_norm_eps": 1e-05,
    "max_position_embeddings": 8194,
    "model_type": "xlm-roberta",
    "pad_token_id": 1,
    "eos_token_id": 2,
    "type_vocab_size": 1,
}
QWEN3: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "eos_token_id": 31,
    "head_dim": 8,
    "hidden_act": "silu",
    "hidden_size": 8,
    "intermediate_size": 24,
    "max_position_embeddings": 40960,
    "model_type": "qwen3",
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "vocab_size": 32,
}
GLM: dict[str, Any] = {
    "architectures": ["GlmMoeDsaForCausalLM"],
    "dtype": "bfloat16",
    "first_k_dense_replace": 1,
    "head_dim": 12,
    "hidden_size": 64,
    "index_head_dim": 8,
    "index_n_heads": 4,
    "indexer_types": ["full", "shared", "full"],
    "intermediate_size": 96,
    "kv_lora_rank": 16,
    "max_position_embeddings": 1048576,
    "model_type": "glm_moe_dsa",
    "moe_intermediate_size": 32,
    "moe_layer_freq": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 4,
    "rope_parameters": {"rope_theta": 8000000, "rope_type": "default"},
    "v_head_dim": 16,
    "vocab_size": 32,
}

GEMMA3: dict[str, Any] = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "dtype": "bfloat16",
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 64,
        "intermediate_size": 96,
        "model_type": "gemma3_text",
        "num_hidden_layers": 8,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 16,
    },
    "vision_config": {"hidden_size": 32},
}
GEMMA4: dict[str, Any] = {
    "architectures": ["Gemma4ForConditionalGeneration"],
    "dtype": "bfloat16",
    "model_type": "gemma4",
    "text_config": {
        "attention_k_eq_v": True,
        "enable_moe_block": True,
        "global_head_dim": 32,
        "head_dim": 16,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 64,
        "hidden_size_per_layer_input": 0,
        "intermediate_size": 72,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "max_position_embeddings": 1024,
        "model_type": "gemma4_text",
        "moe_intermediate_size": 24,
        "num_attention_heads": 4,
        "num_experts": 8,
        "num_global_key_value_heads": 1,
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "num_kv_shared_layers": 0,
        "rope_parameters": {
            "full_attention": {"rope_theta": 1000000.0, "rope_type": "proportional"},
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
        },
        "sliding_window": 16,
        "top_k_experts": 2,
        "use_bidirectional_attention": "vision",
        "vocab_size": 32,
    },
    "vision_config": {},
}
GPT_OSS: dict[str, Any] = {
    "architectures": ["GptOssForCausalLM"],
    "attention_bias": True,
    "head_dim": 8,
    "hidden_size": 48,
    "intermediate_size": 40,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "max_position_embeddings": 1024,
    "model_type": "gpt_oss",
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "num_local_experts": 8,
    "quantization_config": {
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"],
        "quant_method": "mxfp4",
    },
    "sliding_window": 16,
    "vocab_size": 32,
}
LLAMA4: dict[str, Any] = {
    "architectures": ["Llama4ForConditionalGeneration"],
    "model_type": "llama4",
    "text_config": {
        "attention_chunk_size": 64,
        "head_dim": 8,
        "hidden_size": 64,
        "interleave_moe_layer_step": 1,
        "intermediate_size": 32,
        "intermediate_size_mlp": 64,
        "max_position_embeddings": 1048576,
        "model_type": "llama4_text",
        "num_attention_heads": 8,
        "num_experts_per_tok": 1,
        "num_hidden_layers": 8,
        "num_key_value_heads": 2,
        "num_local_experts": 4,
        "torch_dtype": "bfloat16",
        "vocab_size": 32,
    },
}
QWEN3_5: dict[str, Any] = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"],
    "model_type": "qwen3_5_moe",
    "text_config": {
        "attn_output_gate": True,
        "dtype": "bfloat16",
        "head_dim": 16,
        "hidden_size": 64,
        "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 6,
        "linear_value_head_dim": 8,
        "max_position_embeddings": 1024,
        "model_type": "qwen3_5_moe_text",
        "moe_intermediate_size": 24,
        "num_attention_heads": 4,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 4,
        "num_key_value_heads": 2,
        "rope_parameters": {"rope_theta": 10000000, "rope_type": "default"},
        "shared_expert_intermediate_size": 24,
        "vocab_size": 32,
    },
    "tie_word_embeddings": False,
}
DEEPSEEK_V4: dict[str, Any] = {
    "architectures": ["DeepseekV4ForCausalLM"],
    "compress_ratios": [0, 4, 128, 4, 0],
    "expert_dtype": "fp4",
    "head_dim": 32,
    "hidden_size": 64,
    "index_head_dim": 8,
    "index_n_heads": 4,
    "index_topk": 16,
    "max_position_embeddings": 1024,
    "model_type": "deepseek_v4",
    "moe_intermediate_size": 24,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_attention_heads": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 4,
    "num_key_value_heads": 1,
    "o_groups": 2,
    "o_lora_rank": 12,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "sliding_window": 16,
    "torch_dtype": "bfloat16",
    "vocab_size": 32,
}

BERT_TENSORS = {
    "embeddings.position_ids": ("I64", (1, 512)),
    "embeddings.word_embeddings.weight": ("F32", (32, 8)),
    "encoder.layer.0.attention.self.query.weight": ("F32", (8, 8)),
    "pooler.dense.weight": ("F32", (8, 8)),
}
BERT_LOADED_BYTES = 4 * (32 * 8 + 8 * 8)


def safetensors(tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> bytes:
    """A file whose tensors are zeros."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + math.prod(shape) * SIZES[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(end)


def write(folder: Path, files: Mapping[str, object]) -> Path:
    """`folder` with `files`: bytes as they are, anything else as JSON."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder


def minilm(**changes: object) -> dict[str, object]:
    """Files of a sentence-transformers encoder as its release 2 wrote them; a null change leaves a file out."""
    files: dict[str, object] = {
        "config.json": BERT,
        "config_sentence_transformers.json": {"__version__": {"sentence_transformers": "2.0.0"}},
        "model.safetensors": safetensors(BERT_TENSORS),
        "modules.json": [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
            {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
        ],
        "sentence_bert_config.json": {"max_seq_length": 256, "do_lower_case": False},
        "1_Pooling/config.json": {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True},
        "tokenizer_config.json": {"model_max_length": 512},
    }
    return {name: content for name, content in (files | changes).items() if content is not None}


def host(env: Mapping[str, str] | None = None, site_packages: tuple[str, ...] = ()) -> Host:
    """A host that knows its environment and its site-packages and nothing else; without HF_ENDPOINT it is offline."""
    known = {"HF_HUB_OFFLINE": "" if env and "HF_ENDPOINT" in env else "1", **(env or {})}

    class Fake:
        def env(self, name: str) -> str | None:
            return known.get(name)

        def platform(self) -> Platform:
            return Platform(system="linux", machine="x86_64", release=None, python=None, site_packages=site_packages)

    return cast("Host", Fake())
