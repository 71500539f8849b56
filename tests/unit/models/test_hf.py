"""A model folder gives exact bytes and the conventions of its sentence-transformers files, whatever it contains."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.models.folders import BERT, BERT_LOADED_BYTES, BERT_TENSORS, QWEN3, XLM_R, minilm, safetensors, write
from vllm_probe.core.errors import InvalidJson, InvalidModel, UnreadableFile, UnsupportedModel, WeightsUnavailable
from vllm_probe.models.hf import read_folder

TRANSFORMER = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
LAYER = ("BF16", (8, 8))


def test_a_sentence_transformer_is_read_with_its_conventions(tmp_path: Path) -> None:
    spec = read_folder(write(tmp_path / "tiny", minilm()))
    assert (spec.name, spec.task, spec.pooling, spec.normalizes) == ("tiny", "embed", "mean", True)
    assert (spec.max_model_len, spec.num_positions, spec.prompts) == (256, 512, {})
    assert spec.weights_path == str(tmp_path / "tiny")
    assert spec.source.endswith("config.json, sentence-transformers files and safetensors headers")


def test_weight_bytes_are_those_of_the_tensors_that_are_loaded(tmp_path: Path) -> None:
    spec = read_folder(write(tmp_path, minilm()))
    assert (spec.weight_bytes, spec.num_parameters) == (BERT_LOADED_BYTES, BERT_LOADED_BYTES // 4)
    assert spec.dtype == "float32"


def test_the_stored_format_is_taken_where_the_config_states_none(tmp_path: Path) -> None:
    half = {name: ("F16" if dtype == "F32" else dtype, shape) for name, (dtype, shape) in BERT_TENSORS.items()}
    assert read_folder(write(tmp_path, minilm(**{"model.safetensors": safetensors(half)}))).dtype == "float16"


def test_release_6_writes_pooling_prompts_and_length_elsewhere(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "1_Pooling/config.json": {"embedding_dimension": 8, "pooling_mode": "cls", "include_prompt": True},
        "config_sentence_transformers.json": {"prompts": {"query": "Query: ", "document": "", "bad": 1}},
        "modules.json": [
            TRANSFORMER,
            {"path": "1_Pooling", "type": "sentence_transformers.sentence_transformer.modules.pooling.Pooling"},
        ],
        "sentence_bert_config.json": {"transformer_task": "feature-extraction"},
        "tokenizer_config.json": {"model_max_length": 128},
    }
    spec = read_folder(write(tmp_path, minilm(**changes)))
    assert (spec.pooling, spec.normalizes, spec.max_model_len) == ("cls", False, 128)
    assert (spec.prompts, spec.default_prompt) == ({"query": "Query: ", "document": ""}, None)


def test_the_default_prompt_is_one_of_the_prompts(tmp_path: Path) -> None:
    about = {"prompts": {"query": "Query: "}, "default_prompt_name": "query"}
    files = minilm(**{"config_sentence_transformers.json": about})
    assert read_folder(write(tmp_path, files)).default_prompt == "query"
    for wrong in ("document", ["query"], 1):
        files = minilm(**{"config_sentence_transformers.json": {**about, "default_prompt_name": wrong}})
        with pytest.raises(InvalidModel, match="is none of its prompts"):
            read_folder(write(tmp_path, files))


@pytest.mark.parametrize("length", [10**30, 8192, 0, None, "256", 1e30])
def test_a_stated_length_never_exceeds_the_positions(tmp_path: Path, length: object) -> None:
    files = minilm(**{"sentence_bert_config.json": None, "tokenizer_config.json": {"model_max_length": length}})
    assert read_folder(write(tmp_path, files)).max_model_len == 512


def test_a_decoder_with_last_token_pooling_embeds_and_needs_no_head(tmp_path: Path) -> None:
    tensors = {"model.embed_tokens.weight": ("BF16", (32, 8)), "lm_head.weight": ("BF16", (32, 8))}
    files = minilm(
        **{
            "config.json": QWEN3 | {"tie_word_embeddings": False},
            "1_Pooling/config.json": {"pooling_mode_lasttoken": True},
            "model.safetensors": safetensors(tensors),
        }
    )
    spec = read_folder(write(tmp_path, files))
    assert (spec.task, spec.pooling, spec.ties_embeddings, spec.weight_bytes) == ("embed", "last", True, 2 * 32 * 8)


def test_linears_behind_pooling_are_read_in_order_and_weighed(tmp_path: Path) -> None:
    files = minilm()
    pooling = {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}
    dense = [{"path": f"{index}_Dense", "type": "sentence_transformers.models.Dense"} for index in (2, 3)]
    files["modules.json"] = [TRANSFORMER, pooling, *dense]
    for index, width in ((2, 24), (3, 4)):
        files[f"{index}_Dense/config.json"] = {"in_features": 8, "out_features": width, "bias": False}
        files[f"{index}_Dense/model.safetensors"] = safetensors({"linear.weight": ("F32", (width, 8))})
    spec = read_folder(write(tmp_path, files))
    assert spec.projections == (24, 4)
    assert spec.weight_bytes == BERT_LOADED_BYTES + 4 * 8 * (24 + 4)


def test_an_older_layout_keeps_the_model_in_a_subfolder(tmp_path: Path) -> None:
    modules = [TRANSFORMER | {"path": "0_Transformer"}, {"path": "1_Pooling", "type": "x.Pooling"}]
    files = minilm(**{"config.json": None, "model.safetensors": None, "modules.json": modules})
    files |= {"0_Transformer/config.json": BERT, "0_Transformer/model.safetensors": safetensors(BERT_TENSORS)}
    assert read_folder(write(tmp_path, files)).weights_path == str(tmp_path / "0_Transformer")


def test_shards_are_added_up_without_tied_heads_buffers_and_prediction_layers(tmp_path: Path) -> None:
    first = {"model.embed_tokens.weight": ("BF16", (32, 8)), "model.layers.0.mlp.up_proj.weight": LAYER}
    second = {
        "model.layers.1.mlp.up_proj.weight": LAYER,
        "model.layers.2.eh_proj.weight": LAYER,
        "model.layers.0.self_attn.rotary_emb.inv_freq": ("F32", (4,)),
        "h.0.attn.bias": ("F32", (1, 1, 8, 8)),
        "lm_head.weight": ("BF16", (32, 8)),
        "mtp.layers.0.mlp.up_proj.weight": LAYER,
    }
    index = dict.fromkeys(first, "model-0.safetensors") | dict.fromkeys(second, "model-1.safetensors")
    files = {
        "config.json": QWEN3,
        "generation_config.json": {"eos_token_id": [31, 30]},
        "model-0.safetensors": safetensors(first),
        "model-1.safetensors": safetensors(second),
        "model.safetensors.index.json": {"metadata": {"total_size": 1}, "weight_map": index},
    }
    spec = read_folder(write(tmp_path, files))
    assert (spec.weight_bytes, spec.task, spec.eos_token_ids) == (2 * (32 * 8 + 2 * 64), "generate", (31, 30))


def test_a_config_alone_is_a_shape_without_weights(tmp_path: Path) -> None:
    spec = read_folder(write(tmp_path, {"config.json": XLM_R}))
    assert (spec.weights_path, spec.weight_bytes, spec.num_parameters) == (None, None, None)
    assert (spec.pooling, spec.max_model_len) == ("cls", 8192)


def test_packed_weights_have_bytes_and_no_count_of_parameters(tmp_path: Path) -> None:
    packed = {"model.layers.0.mlp.up_proj.qweight": ("I32", (1, 8))}
    config = QWEN3 | {"quantization_config": {"quant_method": "awq"}}
    spec = read_folder(write(tmp_path, {"config.json": config, "model.safetensors": safetensors(packed)}))
    assert (spec.quantization, spec.weight_bytes, spec.num_parameters, spec.dtype) == ("awq", 32, None, "bfloat16")


def test_the_head_of_a_reranker_is_loaded(tmp_path: Path) -> None:
    config = BERT | {"architectures": ["BertForSequenceClassification"]}
    tensors = {f"bert.{name}": tensor for name, tensor in BERT_TENSORS.items()} | {"classifier.weight": ("F32", (1, 8))}
    spec = read_folder(write(tmp_path, {"config.json": config, "model.safetensors": safetensors(tensors)}))
    assert spec.weight_bytes == BERT_LOADED_BYTES + 4 * (8 * 8 + 8)


def awq(place: str, k: int, n: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {
        f"{place}.qweight": ("I32", (k, n // 8)),
        f"{place}.qzeros": ("I32", (k // 128, n // 8)),
        f"{place}.scales": ("F16", (k // 128, n)),
    }


def test_packed_weights_have_the_bits_of_their_tensors_part_by_part(tmp_path: Path) -> None:
    config = QWEN3 | {"hidden_size": 128, "intermediate_size": 256, "head_dim": 32, "num_hidden_layers": 1}
    config |= {"quantization_config": {"quant_method": "awq"}, "tie_word_embeddings": False}
    layer = "model.layers.0"
    tensors = {
        "model.embed_tokens.weight": ("F16", (32, 128)),
        "lm_head.weight": ("F16", (32, 128)),
        f"{layer}.self_attn.q_norm.weight": ("F32", (32,)),
        **{
            f"{layer}.self_attn.{name}_proj.weight": ("F16", (n, 128)) for name, n in (("q", 128), ("k", 64), ("v", 64))
        },
        f"{layer}.self_attn.o_proj.weight": ("F16", (128, 128)),
        **awq(f"{layer}.mlp.gate_proj", 128, 256),
        **awq(f"{layer}.mlp.up_proj", 128, 256),
        **awq(f"{layer}.mlp.down_proj", 256, 128),
    }
    spec = read_folder(write(tmp_path, {"config.json": config, "model.safetensors": safetensors(tensors)}))
    assert spec.stored_bits == {"attention": 16, "feed_forward": 4.15625, "lm_head": 16}


def test_what_an_older_modelopt_wrote_into_its_own_file_counts(tmp_path: Path) -> None:
    beside = {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head", "*self_attn*"]}}
    beside["quantization"]["kv_cache_quant_algo"] = "FP8"
    write(tmp_path, {"config.json": QWEN3, "hf_quant_config.json": beside})
    spec = read_folder(tmp_path)
    assert (spec.quantization, spec.quantized_parts) == ("nvfp4", {"attention": "none"})
    assert spec.kv_cache_dtype == "fp8_e4m3"
    write(tmp_path, {"config.json": QWEN3 | {"quantization_config": {"quant_method": "fp8"}}})
    assert read_folder(tmp_path).quantization == "fp8"
    write(tmp_path, {"config.json": QWEN3, "hf_quant_config.json": {"quantization": 3}})
    assert read_folder(tmp_path).quantization == "none"


def test_pickled_weights_are_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(WeightsUnavailable, match=r"pytorch_model\.bin.*pickle is not read") as caught:
        read_folder(write(tmp_path, {"config.json": BERT, "pytorch_model.bin": b"\x80\x02"}))
    assert "convert to safetensors" in caught.value.hint


def test_a_folder_without_a_config_is_no_model_and_an_absent_one_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(InvalidModel, match=r"no config\.json"):
        read_folder(tmp_path)
    with pytest.raises(UnreadableFile, match="no such folder"):
        read_folder(tmp_path / "absent")
    with pytest.raises(InvalidModel):
        read_folder(write(tmp_path, {"model.gguf": b"GGUF"}) / "model.gguf")


@pytest.mark.parametrize(
    ("changes", "error", "reason"),
    [
        ({"config.json": b"{"}, InvalidJson, "line 1"),
        ({"config.json": b"\xff\xfe"}, UnreadableFile, "UTF-8"),
        ({"config.json": []}, InvalidModel, "dict"),
        ({"modules.json": {}}, InvalidModel, "list"),
        ({"modules.json": ["x"]}, InvalidModel, "modules"),
        ({"modules.json": [{"type": "Transformer", "path": "../elsewhere"}]}, InvalidModel, "modules"),
        ({"modules.json": [TRANSFORMER, {"path": "2_Conv", "type": "x.Conv"}]}, UnsupportedModel, "'Conv'"),
        ({"modules.json": [TRANSFORMER, {"path": "2_Dense", "type": "x.Dense"}]}, InvalidModel, "out_features"),
        ({"1_Pooling/config.json": {"pooling_mode_max_tokens": True}}, UnsupportedModel, "max_tokens"),
        ({"1_Pooling/config.json": {"pooling_mode": ["mean", "cls"]}}, UnsupportedModel, "mean"),
        ({"1_Pooling/config.json": {"pooling_mode": {"a": 1}}}, UnsupportedModel, "pooling"),
        ({"1_Pooling/config.json": None}, UnsupportedModel, "pooling"),
        ({"model.safetensors": b"\x80\x02pickle..."}, InvalidModel, "header"),
        ({"config.json": BERT | {"vocab_size": 33}}, InvalidModel, "word_embeddings"),
        ({"tokenizer_config.json": "text", "sentence_bert_config.json": None}, InvalidModel, "tokenizer_config"),
        ({"generation_config.json": b"nul"}, InvalidJson, "generation_config"),
    ],
)
def test_files_that_are_damaged_or_unknown_are_named(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        read_folder(write(tmp_path, minilm(**changes)))


@pytest.mark.parametrize(
    ("weight_map", "reason"),
    [
        (None, "does not map"),
        ({"a": 1}, "does not map"),
        ({"a": "../a.safetensors"}, "does not map"),
        ({"a": "/etc/passwd"}, "does not map"),
        ({"a": "pytorch_model.bin"}, "does not map"),
        ({"a": "one.safetensors", "b": "one.safetensors"}, "no shard holds the tensor 'b'"),
        ({"a": "one.safetensors", "b": "two.safetensors"}, "repeats"),
    ],
)
def test_an_index_is_held_to_its_shards(tmp_path: Path, weight_map: object, reason: str) -> None:
    shard = safetensors({"a": LAYER})
    files = {"config.json": BERT, "model.safetensors.index.json": {"weight_map": weight_map}}
    with pytest.raises(InvalidModel, match=reason):
        read_folder(write(tmp_path, files | {"one.safetensors": shard, "two.safetensors": shard}))


@pytest.mark.parametrize(
    "names",
    [
        ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
        ("pytorch_model.safetensors",),
        ("model.fp16.safetensors", "more.safetensors"),
    ],
)
def test_weights_that_no_index_names_are_the_models(tmp_path: Path, names: tuple[str, ...]) -> None:
    files: dict[str, Any] = {name: safetensors({f"layer.{name}": LAYER}) for name in names}
    files |= {"config.json": QWEN3, "consolidated.safetensors": b"of another tool"}
    spec = read_folder(write(tmp_path, files | {"adapter_model.safetensors": safetensors({"x": LAYER})}))
    assert spec.weight_bytes == len(names) * 2 * 64
    assert spec.weights_path == str(tmp_path.resolve())


def test_a_tower_that_is_not_counted_is_no_matter_where_headers_tell_the_bytes(tmp_path: Path) -> None:
    heard = QWEN3 | {"architectures": ["NewForConditionalGeneration"], "text_config": QWEN3, "audio_config": {"a": 1}}
    assert read_folder(write(tmp_path, {"config.json": heard})).unknown.keys() == {"vision_parameters"}
    weights = safetensors({"layer": LAYER})
    assert read_folder(write(tmp_path, {"config.json": heard, "model.safetensors": weights})).unknown == {}


def test_numbered_shards_that_no_index_names_are_counted(tmp_path: Path) -> None:
    files = {"config.json": QWEN3, "model-00001-of-00002.safetensors": safetensors({"a": LAYER})}
    with pytest.raises(InvalidModel, match="lacks shards"):
        read_folder(write(tmp_path, files))
    assert read_folder(tmp_path, whole=False).weights_path is None


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    index = {"weight_map": {"a": "one.safetensors"}}
    with pytest.raises(UnreadableFile, match=r"one\.safetensors"):
        read_folder(write(tmp_path, {"config.json": BERT, "model.safetensors.index.json": index}))


def test_a_pipe_in_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(InvalidModel):
        read_folder(tmp_path)
