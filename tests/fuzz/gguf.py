"""Fuzz target: bytes as a GGUF file, through the shape of the model that they describe."""

import tempfile
from pathlib import Path

from tests.fuzz.runner import main
from vllm_probe.core.errors import InvalidModel, UnsupportedModel
from vllm_probe.models.gguf_model import read_gguf_model


def one_input(content: bytes) -> None:
    """Reads `content`; any other failure than the typed ones is a finding."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.gguf")
        path.write_bytes(content)
        try:
            read_gguf_model(path)
        except (InvalidModel, UnsupportedModel):
            return


if __name__ == "__main__":
    main(one_input)
