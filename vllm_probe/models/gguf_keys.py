"""Words of GGUF metadata and those of Hugging Face configs for the same.

https://github.com/ggml-org/llama.cpp, gguf-py/gguf/constants.py and convert_hf_to_gguf.py
"""

_SAME = (
    "apertus", "arcee", "baichuan", "bloom", "chatglm", "cohere2", "deepseek", "dots1", "ernie4_5", "exaone", "exaone4",
    "falcon", "gpt2", "gptj", "granite", "granitemoe", "internlm2", "lfm2", "minicpm", "mpt", "nemotron", "olmo",
    "olmo2", "olmoe", "phimoe", "qwen", "seed_oss", "smollm3", "stablelm", "starcoder2",
)  # fmt: skip
"""Architectures that are called like the model type."""

MODEL_TYPES: dict[str, str] = {
    **{kind: kind for kind in _SAME},
    "llama": "llama",
    "llama4": "llama4_text",
    "mistral3": "mistral",
    "phi3": "phi3",
    "qwen2": "qwen2",
    "qwen2moe": "qwen2_moe",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "qwen3next": "qwen3_next",
    "qwen35": "qwen3_5_text",
    "qwen35moe": "qwen3_5_moe_text",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "gemma-embedding": "gemma3_text",
    "gemma4": "gemma4_text",
    "gpt-oss": "gpt_oss",
    "minimax-m2": "minimax_m2",
    "glm4": "glm4",
    "glm4moe": "glm4_moe",
    "glm-dsa": "glm_moe_dsa",
    "deepseek2": "deepseek_v3",
    "bert": "bert",
    "modern-bert": "modernbert",
    "nomic-bert": "nomic_bert",
    "bailingmoe": "bailing_moe",
    "bailingmoe2": "bailing_moe_v2",
    "command-r": "cohere",
    "ernie4_5-moe": "ernie4_5_moe",
    "exaone-moe": "exaone_moe",
    "gptneox": "gpt_neox",
    "hunyuan-dense": "hunyuan_v1_dense",
    "hunyuan-moe": "hunyuan_v1_moe",
    "lfm2moe": "lfm2_moe",
    "phi2": "phi",
    "qwen2vl": "qwen2_vl_text",
    "qwen3vl": "qwen3_vl_text",
    "qwen3vlmoe": "qwen3_vl_moe_text",
    "starcoder": "gpt_bigcode",
}
"""Architecture of a GGUF file to the model type of its config."""

KEYS: dict[str, str] = {
    "embedding_length": "hidden_size",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "layer_norm_eps",
    "attention.sliding_window": "sliding_window",
    "rope.freq_base": "rope_theta",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_count": "n_shared_experts",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "leading_dense_block_count": "first_k_dense_replace",
    "interleave_moe_layer_step": "interleave_moe_layer_step",
    "attention.shared_kv_layers": "num_kv_shared_layers",
    "embedding_length_per_layer_input": "hidden_size_per_layer_input",
    "attention.q_lora_rank": "q_lora_rank",
    "attention.kv_lora_rank": "kv_lora_rank",
    "attention.indexer.head_count": "index_n_heads",
    "attention.indexer.key_length": "index_head_dim",
    "attention.indexer.top_k": "index_topk",
    "ssm.conv_kernel": "linear_conv_kernel_dim",
    "ssm.state_size": "linear_key_head_dim",
    "ssm.group_count": "linear_num_key_heads",
    "ssm.time_step_rank": "linear_num_value_heads",
}
"""Key of the metadata, behind the architecture, to that of the config where the value is the same."""
