"""Fuzz target: bytes as a safetensors file."""

import tempfile
from pathlib import Path

from tests.fuzz.runner import main
from vllm_probe.core.errors import InvalidModel
from vllm_probe.models.safetensors import read_header


def one_input(content: bytes) -> None:
    """Reads `content`; whatever is accepted must cover the file to the byte."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.safetensors")
        path.write_bytes(content)
        try:
            tensors = read_header(path)
        except InvalidModel:
            return
        assert 8 + int.from_bytes(content[:8], "little") + sum(each.nbytes for each in tensors.values()) == len(content)


if __name__ == "__main__":
    main(one_input)
