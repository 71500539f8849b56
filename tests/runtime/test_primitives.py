"""The implementations that a config names are those that a model runs on."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from tests.runtime.qwen3 import write_qwen3, write_tokenizer
from tests.runtime.support import load_engine
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.cpu.adapter import CpuAdapter


class ListeningAdapter(CpuAdapter):
    """A CPU that remembers which implementations were asked for."""

    def __init__(self) -> None:
        super().__init__(LocalHost())
        self.asked: dict[str, set[str | None]] = {"rope": set(), "rms_norm": set(), "attention": set()}

    def _rope(
        self, heads: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor, implementation: str | None
    ) -> torch.Tensor:
        self.asked["rope"].add(implementation)
        return super()._rope(heads, cosines, sines, implementation)

    def _rms_norm(
        self, rows: torch.Tensor, weight: torch.Tensor, epsilon: float, implementation: str | None
    ) -> torch.Tensor:
        self.asked["rms_norm"].add(implementation)
        return super()._rms_norm(rows, weight, epsilon, implementation)

    def _attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        lengths: Sequence[int],
        causal: bool,
        implementation: str | None,
    ) -> torch.Tensor:
        self.asked["attention"].add(implementation)
        return super()._attention(query, key, value, lengths, causal, implementation)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("qwen3")
    write_tokenizer(path)
    return write_qwen3(path)


@pytest.mark.parametrize(
    "chosen",
    [
        {"rope": "naive", "rms_norm": "aten", "attention": "bmm"},
        {"rope": "eager", "rms_norm": "eager", "attention": "sdpa"},
    ],
)
def test_every_primitive_of_a_decoder_runs_as_the_config_says(folder: Path, chosen: dict[str, str]) -> None:
    adapter = ListeningAdapter()
    engine = load_engine(folder, adapter, primitives=chosen)
    try:
        engine.embed(["a river is cold"])
    finally:
        engine.close()
    assert adapter.asked == {name: {implementation} for name, implementation in chosen.items()}
