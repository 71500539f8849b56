"""A Hugging Face model folder to a `ModelSpec`: JSON files and safetensors headers, nothing else is opened."""

import re
import stat
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from vllm_probe.core.errors import InvalidModel, UnreadableFile, UnsupportedModel
from vllm_probe.core.model import ModelSpec, Pooling
from vllm_probe.models.config import parse_config
from vllm_probe.models.facts import Facts
from vllm_probe.models.files import mode_of, read_value
from vllm_probe.models.safetensors import TensorInfo, read_header
from vllm_probe.models.weights import HeaderReader, is_partial, loaded_tensors, read_tensors, stored_bits

_DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_POOLINGS: dict[str, Pooling] = {"mean": "mean", "mean_tokens": "mean", "cls": "cls", "cls_token": "cls"}
_POOLINGS["lasttoken"] = "last"
_NESTED = {"qwen3"}  # the model cards of Qwen3-Embedding say so, their configs do not
_SUBFOLDER = re.compile(r"[\w-]{0,100}")


def read_folder(
    path: Path, header_of: HeaderReader = read_header, *, whole: bool = True, with_weights: bool = True
) -> ModelSpec:
    """The model in the folder at `path`, named after the folder; its weight bytes are exact.

    sentence-transformers files, where there are any, decide pooling, normalisation, prompts and the longest input.
    Without weights `weights_path` is null.

    Args:
        path: folder with config.json.
        header_of: where the headers of its weight files come from.
        whole: missing shards are an error; otherwise a folder that lacks some counts as one without weights.
        with_weights: its weight files are looked at; otherwise it counts as a folder without weights.

    Raises:
        UnreadableFile: no such folder, or a file in it cannot be read.
        InvalidModel: not a model folder, or files that are damaged or contradict each other.
        InvalidJson: a JSON file that is not JSON.
        UnsupportedModel: an architecture, pooling or module that this release cannot express.
        WeightsUnavailable: pickled weights only.
    """
    mode = mode_of(path)
    if not mode:
        raise UnreadableFile(f"cannot read {path}: there is no such folder", hint="give a folder with config.json")
    if not stat.S_ISDIR(mode):
        raise InvalidModel(f"{path} is a file, not the folder of a model", hint=f"give the folder: {path.parent}")
    modules = read_value(path / "modules.json", list)
    kinds = _modules(modules or [], path)
    root = path / kinds.get("Transformer", "")
    config = read_value(root / "config.json", dict)
    if config is None:
        raise InvalidModel(f"{root} has no config.json", hint="give the folder of a Hugging Face model")
    header_of = header_of if with_weights else _no_header
    tensors = read_tensors(root, header_of) if with_weights and (whole or not is_partial(root)) else {}
    dense = _read_dense(path, kinds, header_of)
    spec = parse_config(
        _with_quantization(config, root),
        name=path.resolve().name,
        source=str(root / "config.json"),
        generation=read_value(root / "generation_config.json", dict),
        stored_dtype=_stored_dtype(tensors),
    )
    spec = replace(spec, max_model_len=_longest_input(root, spec.max_model_len))
    if modules is not None:
        spec = replace(_pooled(spec, path, kinds), projections=tuple(width for width, _ in dense))
    is_nested = spec.is_matryoshka or (spec.normalizes and spec.model_type in _NESTED)
    spec = replace(spec, folder=str(root.resolve()), is_matryoshka=is_nested)
    return _weighed(spec, root, tensors, [tensor for _, found in dense for tensor in found]) if tensors else spec


def _no_header(_: Path) -> dict[str, TensorInfo]:
    return {}


def _with_quantization(config: dict[str, Any], root: Path) -> dict[str, Any]:
    """`config` with what older releases of ModelOpt wrote into a file of its own."""
    beside = (read_value(root / "hf_quant_config.json", dict) or {}).get("quantization")
    if not isinstance(beside, dict) or "quantization_config" in config:
        return config
    return config | {"quantization_config": beside | {"quant_method": "modelopt"}}


def _read_dense(path: Path, kinds: dict[str, str], header_of: HeaderReader) -> list[tuple[int, list[TensorInfo]]]:
    """Output width and tensors of each linear behind pooling, in order."""
    folders = [path / folder for kind, folder in kinds.items() if kind.startswith("Dense")]
    configs = [Facts(read_value(folder / "config.json", dict), str(folder)) for folder in folders]
    widths = [config.count("out_features") for config in configs]
    return [
        (width, list(read_tensors(folder, header_of).values())) for width, folder in zip(widths, folders, strict=True)
    ]


def _weighed(spec: ModelSpec, root: Path, tensors: dict[str, TensorInfo], behind: list[TensorInfo]) -> ModelSpec:
    kept = loaded_tensors(tensors, spec)
    loaded = [*kept.values(), *behind]
    count = sum(tensor.num_elements for tensor in loaded)
    is_packed = spec.quantization != "none"
    return replace(
        spec,
        weight_bytes=sum(tensor.nbytes for tensor in loaded),
        num_parameters=count if count and not is_packed else None,
        stored_bits=spec.stored_bits | (stored_bits(kept, spec) if is_packed else {}),
        weights_path=str(root.resolve()),
        unknown={name: reason for name, reason in spec.unknown.items() if name != "vision_parameters"},
        source=f"{spec.source} and safetensors headers",
    )


def _stored_dtype(tensors: dict[str, TensorInfo]) -> str:
    """The number format that most bytes have; float32, the default of transformers, without any."""
    sizes = Counter({"float32": 0})
    for tensor in tensors.values():
        if tensor.dtype in _DTYPES:
            sizes[_DTYPES[tensor.dtype]] += tensor.nbytes
    return sizes.most_common(1)[0][0]


def _modules(modules: list[Any], path: Path) -> dict[str, str]:
    """Subfolder of each sentence-transformers module, by the last part of its class name, with a number for a Dense."""
    kinds: dict[str, str] = {}
    for module in modules:
        kind, folder = (module.get("type"), module.get("path")) if isinstance(module, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(folder, str) or not _SUBFOLDER.fullmatch(folder):
            raise InvalidModel(f"{path}: modules.json does not list modules", hint="get the model's files again")
        name = kind.rpartition(".")[2]
        kinds[f"Dense {len(kinds)}" if name == "Dense" else name] = folder
    unknown = {name for name in kinds if name.partition(" ")[0] not in ("Transformer", "Pooling", "Dense", "Normalize")}
    if unknown:
        raise UnsupportedModel(
            f"{path}: the sentence-transformers module {min(unknown)[:80]!r} is not known",
            hint="models of Transformer, Pooling, Dense and Normalize can be read",
        )
    return kinds


def _pooled(spec: ModelSpec, path: Path, kinds: dict[str, str]) -> ModelSpec:
    """`spec` with pooling, normalisation and prompts of the sentence-transformers files."""
    config = read_value(path / kinds.get("Pooling", "1_Pooling") / "config.json", dict) or {}
    flags = [key.removeprefix("pooling_mode_") for key in config if "pooling_mode_" in key and config[key] is True]
    stated = config.get("pooling_mode", flags)
    mode = stated[0] if isinstance(stated, list) and len(stated) == 1 else stated
    if not isinstance(mode, str) or mode not in _POOLINGS:
        raise UnsupportedModel(f"{path}: pooling {str(mode)[:80]!r} is not known", hint="mean, cls and lasttoken are")
    prompts, default_prompt = _prompts(path / "config_sentence_transformers.json")
    return replace(
        spec,
        task="embed",
        ties_embeddings=True,
        pooling=_POOLINGS[mode],
        normalizes="Normalize" in kinds,
        prompts=prompts,
        default_prompt=default_prompt,
        source=f"{spec.source}, sentence-transformers files",
    )


def _prompts(path: Path) -> tuple[dict[str, str], str | None]:
    """Prompts by name, and the name of the one that texts get without a word."""
    about = read_value(path, dict) or {}
    listed = about["prompts"] if isinstance(about.get("prompts"), dict) else {}
    prompts = {key: text for key, text in listed.items() if isinstance(text, str)}
    default = about.get("default_prompt_name")
    if default is not None and (not isinstance(default, str) or default not in prompts):
        message = f"{path}: default_prompt_name {str(default)[:80]!r} is none of its prompts"
        raise InvalidModel(message, hint="sentence-transformers refuses it too: correct the name or remove it")
    return prompts, default


def _longest_input(root: Path, limit: int) -> int:
    """`limit`, or less where `max_seq_length` or else the tokenizer's `model_max_length` says so.

    sentence-transformers 6 writes the second, older releases the first; vLLM reads both.
    """
    configs = [read_value(path, dict) or {} for path in sorted(root.glob("sentence_*_config.json"))[:1]]
    stated = configs[0].get("max_seq_length") if configs else None
    if stated is None:
        stated = (read_value(root / "tokenizer_config.json", dict) or {}).get("model_max_length")
    return int(stated) if isinstance(stated, int | float) and 1 <= stated < limit else limit
