"""Which tensors of a model folder are loaded, from safetensors headers alone."""

import re
from pathlib import Path

from vllm_probe.core.errors import InvalidModel, WeightsUnavailable
from vllm_probe.core.model import ModelSpec
from vllm_probe.models.files import mode_of, read_value
from vllm_probe.models.safetensors import TensorInfo, read_header

_SHARD = re.compile(r"[\w.-]{1,200}\.safetensors")
_UNUSED = re.compile(r"(?:^|\.)(?:position_ids|token_type_ids|inv_freq)$|^mtp\.")
_ENCODER_HEAD = re.compile(r"^(?:(?:bert|roberta)\.)?pooler\.|^(?:cls|lm_head|classifier)\.")
_LAYER = re.compile(r"(?:^|\.)layers\.(\d{1,6})\.")
_EMBEDDING = re.compile(r"(?:^|\.)(?:embed_tokens|word_embeddings)\.weight$")


def read_tensors(folder: Path) -> dict[str, TensorInfo]:
    """Every tensor of `model.safetensors`, or of the shards that `model.safetensors.index.json` names; {} without.

    Raises:
        InvalidModel: a damaged header, or an index that leaves the folder or that its shards contradict.
        UnreadableFile: a file cannot be read.
        WeightsUnavailable: the folder has pickled weights only.
    """
    if mode_of(folder / "model.safetensors"):
        return read_header(folder / "model.safetensors")
    index = read_value(folder / "model.safetensors.index.json", dict)
    if index is not None:
        return _read_shards(folder, index.get("weight_map"))
    pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
    if pickled:
        raise WeightsUnavailable(
            f"{folder} has its weights in {pickled[0]} only; pickle is not read, because it can run code",
            hint="convert to safetensors, or download a revision that has model.safetensors",
        )
    return {}


def _read_shards(folder: Path, weight_map: object) -> dict[str, TensorInfo]:
    hint = "the download is incomplete or the index is not this model's"
    if not isinstance(weight_map, dict) or not all(
        isinstance(shard, str) and _SHARD.fullmatch(shard) for shard in weight_map.values()
    ):
        raise InvalidModel(f"{folder}: the index does not map tensors to .safetensors files beside it", hint=hint)
    tensors: dict[str, TensorInfo] = {}
    for shard in sorted(set(weight_map.values())):
        found = read_header(folder / shard)
        if not found.keys().isdisjoint(tensors):
            raise InvalidModel(f"{folder / shard} repeats a tensor of another shard", hint=hint)
        tensors |= found
    missing = next((name for name in weight_map if name not in tensors), None)
    if missing is not None:
        raise InvalidModel(f"{folder}: no shard holds the tensor {missing[:80]!r} of the index", hint=hint)
    return tensors


def loaded_tensors(tensors: dict[str, TensorInfo], spec: ModelSpec) -> dict[str, TensorInfo]:
    """The part of `tensors` that an engine keeps in memory for `spec`.

    Left out: buffers that are computed (positions, rotary frequencies); the pooler and the heads of an encoder, since
    no sentence-transformers pooling uses them; an output projection that is tied or that embedding does not need;
    layers of multi-token prediction, behind the last one or under `mtp.`.

    Raises:
        InvalidModel: the token embedding has another shape than the config says.
    """
    for name, tensor in tensors.items():
        expected = (spec.vocab_size, spec.hidden_size)
        if _EMBEDDING.search(name) and spec.quantization == "none" and tensor.shape != expected:
            raise InvalidModel(
                f"{name} has the shape {list(tensor.shape)} where the config says {list(expected)}",
                hint="config.json and the weights belong to different models",
            )
    return {name: tensor for name, tensor in tensors.items() if _is_loaded(name, spec)}


def _is_loaded(name: str, spec: ModelSpec) -> bool:
    if _UNUSED.search(name) or (spec.is_encoder and _ENCODER_HEAD.search(name)):
        return False
    if spec.ties_embeddings and name.startswith("lm_head."):
        return False
    layer = _LAYER.search(name)
    return layer is None or int(layer[1]) < spec.num_layers
