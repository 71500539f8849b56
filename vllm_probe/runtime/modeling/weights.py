"""Weights one tensor at a time: of a checkpoint folder, memory-mapped, or random ones."""

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from vllm_probe.core.errors import InvalidModel
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.values import ENGINE_DTYPES
from vllm_probe.vendors.torchbase import DTYPES

_TO_RESIDUAL = re.compile(r"(?:o_proj|down_proj|output\.dense)\.weight")
_SPREAD = 0.02  # initializer_range of BERT and of Qwen3 in transformers


class Checkpoint:
    """Tensors of a folder in the Hugging Face layout, sharded or not; pickled weights are never read.

    A file is mapped as long as a tensor of it is in use: pages of a mapping that were read stay in the memory of the
    process, so that one mapping for all of them would hold the checkpoint beside the packed weights.
    """

    def __init__(self, folder: Path, anchor: str) -> None:
        """Reads the names, which are looked up behind the prefix that `anchor` has in this checkpoint.

        Raises:
            InvalidModel: damaged files, or no tensor is called `anchor`.
        """
        self._folder = folder
        self._files: dict[str, Path] = {}
        for path in sorted(folder.glob("model*.safetensors")):  # one file, or model-00001-of-00002.safetensors, ...
            with _opened(path) as file:
                self._files |= dict.fromkeys(file.keys(), path)
        found = min((name for name in self._files if f".{name}".endswith(f".{anchor}")), key=len, default=None)
        if found is None:
            raise InvalidModel(f"{folder} has no tensor {anchor!r}", hint="is this a checkpoint of this architecture?")
        self._prefix = found.removesuffix(anchor)

    def tensor(self, name: str, *shape: int) -> torch.Tensor:
        """The tensor `name`, of `shape`, on the host in the checkpoint's number format: a view of the mapped file.

        Raises:
            InvalidModel: it is absent, has another shape, or its file is damaged.
        """
        full = self._prefix + name
        if full not in self._files:
            raise InvalidModel(f"{self._folder} has no tensor {full!r}", hint="download the checkpoint again")
        with _opened(self._files[full]) as file:
            tensor: torch.Tensor = file.get_tensor(full)
        if tuple(tensor.shape) != shape:
            message = f"{self._folder}: {full} is {tuple(tensor.shape)}, config.json says {shape}"
            raise InvalidModel(message, hint="config.json and the weights belong to different models")
        return tensor


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            yield file
    except (OSError, SafetensorError) as error:
        raise InvalidModel(f"{path}: {error}", hint="download the checkpoint again") from error


class DummyWeights:
    """Random weights in the format and of the scale of real ones, the same for a name in every run.

    Norms are one and biases zero; what adds to the residual is divided by sqrt(2 layers), as in GPT-2
    (https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf, 2.3).
    """

    def __init__(self, spec: ModelSpec) -> None:
        words = {runtime: word for word, runtime in ENGINE_DTYPES.items()}
        self._dtype = DTYPES[words[spec.dtype]]
        self._to_residual = _SPREAD / (2 * spec.num_layers) ** 0.5

    def tensor(self, name: str, *shape: int) -> torch.Tensor:
        """The tensor `name`, of `shape`, on the host."""
        if len(shape) == 1:
            return torch.full(shape, float(name.endswith(".weight")), dtype=self._dtype)
        spread = self._to_residual if _TO_RESIDUAL.search(name) else _SPREAD
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        return torch.empty(shape, dtype=self._dtype).normal_(0, spread, generator=generator)
