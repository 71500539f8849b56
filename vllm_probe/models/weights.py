"""Which tensors of a model folder are loaded, from safetensors headers alone."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from vllm_probe.core.errors import InvalidModel, WeightsUnavailable
from vllm_probe.core.model import ModelSpec
from vllm_probe.models.config import RERANKER
from vllm_probe.models.files import mode_of, read_value
from vllm_probe.models.modules import modules
from vllm_probe.models.safetensors import TensorInfo, read_header

HeaderReader: TypeAlias = Callable[[Path], dict[str, TensorInfo]]
"""A file's path to its tensors, by name."""

INDEX = "model.safetensors.index.json"
_MAX_TENSORS = 1 << 19  # the largest checkpoints have 200,000, mostly experts and their scales
_HINT = "the download is incomplete or the index is not this model's"
_SHARD = re.compile(r"[\w.-]{1,200}\.safetensors")
_NUMBERED = re.compile(r"-\d{5}-of-(\d{5})\.safetensors$")
_BESIDE_WEIGHTS = ("adapter", "consolidated")
_UNUSED = re.compile(r"(?:^|\.)(?:position_ids|token_type_ids|inv_freq|attn\.bias|masked_bias)$|^mtp\.")
_ENCODER_HEAD = re.compile(r"^(?:(?:bert|roberta|new)\.)?pooler\.|^(?:cls|lm_head|classifier|head|decoder|vocab_\w+)\.")
_LAYER = re.compile(r"(?:^|\.)layers\.(\d{1,6})\.")
_MIXED = "in|out|x|dt|q|k|v|o"
_PARTS = (
    ("experts", re.compile(r"\.experts\.")),
    ("attention", re.compile(rf"\.(?:self_attn|linear_attn|attention|attn|mamba|conv)\.|\.mixer\.(?:{_MIXED})_proj\.")),
    ("feed_forward", re.compile(r"\.(?:mlp|feed_forward|shared_experts?|shared_mlp)\.|\.mixer\.(?:up|down)_proj\.")),
    ("lm_head", re.compile(r"^lm_head\.")),
)
_BESIDE = re.compile(r"norm|\.bias$|\.sinks$|\.(?:gate|router|shared_expert_gate)\.|\.conv1d\.|A_log$|dt_bias$|indexer")
_MOST_BITS = 33  # fp32 and a scale
_EMBEDDING = re.compile(r"(?:^|\.)(?:embed_tokens|word_embeddings)\.weight$")


def read_tensors(folder: Path, header_of: HeaderReader = read_header) -> dict[str, TensorInfo]:
    """Every tensor of `model.safetensors`, or of the shards that `model.safetensors.index.json` names; {} without.

    Where there is neither, every other safetensors file is one of the model's, as vLLM takes it
    (model_executor/model_loader/default_loader.py, 0.32), but adapters and the copies of Mistral's own tools.

    Raises:
        InvalidModel: a damaged header, an index that leaves the folder or that its shards contradict, or a shard of a
            numbered set that is not there.
        UnreadableFile: a file cannot be read.
        WeightsUnavailable: the folder has pickled weights only.
    """
    if mode_of(folder / "model.safetensors"):
        return header_of(folder / "model.safetensors")
    weight_map = _weight_map(folder)
    if weight_map is not None:
        return _read_shards(folder, weight_map.values(), weight_map, header_of)
    if unlisted := _unlisted(folder):
        if _lacks_some(unlisted):
            raise InvalidModel(f"{folder} lacks shards beside {unlisted[0]}", hint="the download is incomplete")
        return _read_shards(folder, unlisted, (), header_of)
    pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
    if pickled:
        raise WeightsUnavailable(
            f"{folder} has its weights in {pickled[0]} only; pickle is not read, because it can run code",
            hint="convert to safetensors, or download a revision that has model.safetensors",
        )
    return {}


def is_partial(folder: Path) -> bool:
    """Whether shards of `folder` are not there, by its index or else their numbers, as after an interrupted download.

    Raises:
        InvalidModel: as `read_tensors`, for the index.
    """
    if mode_of(folder / "model.safetensors"):
        return False
    weight_map = _weight_map(folder)
    shards = _unlisted(folder) if weight_map is None else [*weight_map.values()]
    return (weight_map is None and _lacks_some(shards)) or not all(mode_of(folder / shard) for shard in {*shards})


def _unlisted(folder: Path) -> list[str]:
    """Names of the weight files of a folder without an index, sorted."""
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    return [name for name in names if not name.startswith(_BESIDE_WEIGHTS)]


def _lacks_some(shards: list[str]) -> bool:
    """Whether there are fewer or more numbered shards than each of them says there are."""
    totals = [int(numbered[1]) for shard in shards if (numbered := _NUMBERED.search(shard))]
    return any(total != len(totals) for total in totals)


def _weight_map(folder: Path) -> dict[str, str] | None:
    """Tensor to the shard that holds it, as the index says; null without an index."""
    index = read_value(folder / INDEX, dict)
    if index is None:
        return None
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not all(
        isinstance(shard, str) and _SHARD.fullmatch(shard) for shard in weight_map.values()
    ):
        raise InvalidModel(f"{folder}: the index does not map tensors to .safetensors files beside it", hint=_HINT)
    return weight_map


def _read_shards(
    folder: Path, shards: Iterable[str], names: Iterable[str], header_of: HeaderReader
) -> dict[str, TensorInfo]:
    """The tensors of `shards`, which hold at least those that are called `names`."""
    tensors: dict[str, TensorInfo] = {}
    for shard in sorted({*shards}):
        found = header_of(folder / shard)
        if not found.keys().isdisjoint(tensors):
            raise InvalidModel(f"{folder / shard} repeats a tensor of another shard", hint=_HINT)
        tensors |= found
        if len(tensors) > _MAX_TENSORS:
            raise InvalidModel(f"{folder}: more than {_MAX_TENSORS} tensors", hint="is this a model?")
    missing = next((name for name in names if name not in tensors), None)
    if missing is not None:
        raise InvalidModel(f"{folder}: no shard holds the tensor {missing[:80]!r} of the index", hint=_HINT)
    return tensors


def loaded_tensors(tensors: dict[str, TensorInfo], spec: ModelSpec) -> dict[str, TensorInfo]:
    """The part of `tensors` that an engine keeps in memory for `spec`.

    Left out: buffers that are computed (positions, rotary frequencies, causal masks of a GPT); the pooler and the heads
    of an encoder that does not score, since no sentence-transformers pooling uses them; an output projection that is
    tied or that embedding does not need; layers of multi-token prediction, behind the last one or under `mtp.`.

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


def stored_bits(tensors: dict[str, TensorInfo], spec: ModelSpec) -> dict[str, float]:
    """Bits of a weight in each part of `spec`, scales and zero points included, from its loaded `tensors`.

    A part whose tensors are named in another way than transformers names them is left out.
    """
    nbytes, weights = Counter[str](), Counter[str]()
    for name, tensor in tensors.items():
        part = next((part for part, pattern in _PARTS if pattern.search(name)), None)
        if part and not _BESIDE.search(name):
            nbytes[part] += tensor.nbytes
    linear = sum(group.num_layers for group in spec.attention_groups if group.kind == "linear")
    for module in modules(spec, range(linear)):
        weights[module.part] += module.weights
    weights["lm_head"] = spec.vocab_size * spec.hidden_size
    bits = {part: 8 * nbytes[part] / count for part, count in weights.items()}
    return {part: found for part, found in bits.items() if 1 <= found <= _MOST_BITS}


def _is_loaded(name: str, spec: ModelSpec) -> bool:
    scores = spec.architecture.endswith(RERANKER)
    if _UNUSED.search(name) or (spec.is_encoder and not scores and _ENCODER_HEAD.search(name)):
        return False
    if spec.ties_embeddings and name.startswith("lm_head."):
        return False
    layer = _LAYER.search(name)
    return layer is None or int(layer[1]) < spec.num_layers
