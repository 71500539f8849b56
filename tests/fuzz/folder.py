"""Fuzz target: bytes as one file of a model folder whose other files are good; the first byte says which."""

import tempfile
from pathlib import Path

from tests.fuzz.runner import main
from tests.unit.models.folders import QWEN3, minilm, safetensors, write
from vllm_probe.core.errors import InputError, Unavailable
from vllm_probe.models.hf import read_folder

FILES = (
    "config.json",
    "generation_config.json",
    "hf_quant_config.json",
    "model.safetensors.index.json",
    "modules.json",
    "1_Pooling/config.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "tokenizer_config.json",
)


def one_input(content: bytes) -> None:
    """Reads a folder with `content`; any other failure than the typed ones is a finding."""
    name = FILES[content[0] % len(FILES)] if content else FILES[0]
    files = minilm(**{"config.json": QWEN3, "model.safetensors": None, "one.safetensors": safetensors({})})
    with tempfile.TemporaryDirectory() as folder:
        try:
            read_folder(write(Path(folder), files | {name: content[1:]}))
        except (InputError, Unavailable):
            return


if __name__ == "__main__":
    main(one_input)
