"""Weights of a checkpoint folder, memory-mapped and read one tensor at a time."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open

from vllm_probe.core.errors import InvalidModel


class Checkpoint:
    """Tensors of a folder in the Hugging Face layout, sharded or not; pickled weights are never read."""

    def __init__(self, folder: Path, anchor: str) -> None:
        """Opens the files; names are looked up behind the prefix that `anchor` has in this checkpoint.

        Raises:
            InvalidModel: damaged files, or no tensor is called `anchor`.
        """
        self._folder = folder
        self._open = ExitStack()
        self._files: dict[str, Any] = {}
        for path in sorted(folder.glob("model*.safetensors")):  # one file, or model-00001-of-00002.safetensors, ...
            try:
                file = self._open.enter_context(safe_open(path, framework="pt", device="cpu"))
            except (OSError, SafetensorError) as error:
                raise InvalidModel(f"{path}: {error}", hint="download the checkpoint again") from error
            self._files |= dict.fromkeys(file.keys(), file)
        found = min((name for name in self._files if f".{name}".endswith(f".{anchor}")), key=len, default=None)
        if found is None:
            raise InvalidModel(f"{folder} has no tensor {anchor!r}", hint="is this an encoder checkpoint?")
        self._prefix = found.removesuffix(anchor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.clear()
        self._open.close()

    def tensor(self, name: str, *shape: int) -> torch.Tensor:
        """The tensor `name`, of `shape`, on the host in the checkpoint's number format.

        Raises:
            InvalidModel: it is absent or has another shape.
        """
        full = self._prefix + name
        if full not in self._files:
            raise InvalidModel(f"{self._folder} has no tensor {full!r}", hint="download the checkpoint again")
        tensor = self._files[full].get_tensor(full)
        if tuple(tensor.shape) != shape:
            message = f"{self._folder}: {full} is {tuple(tensor.shape)}, config.json says {shape}"
            raise InvalidModel(message, hint="config.json and the weights belong to different models")
        return tensor
