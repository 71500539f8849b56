"""The implementations that a config names are those that a model runs on."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.runtime.qwen3 import write_qwen3, write_tokenizer
from tests.runtime.support import load_engine, make_config
from vllm_probe.api.serving import compiling
from vllm_probe.core.config import Compile
from vllm_probe.host.local import LocalHost
from vllm_probe.models.hf import read_folder
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


COMPILED = Compile(enabled=True, mode="default", backend="inductor", reason="a test")


@pytest.mark.slow
@pytest.mark.skipif(LocalHost().which("g++") is None, reason="no g++ on PATH")
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch's own, while it imports its compiler
def test_a_compiled_decoder_answers_at_once_and_the_same_ever_after(folder: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    adapter = ListeningAdapter()
    adapter.compile_folder = tmp_path
    engine = load_engine(folder, adapter, compile=COMPILED, primitives={"rms_norm": "eager"})  # one kind to compile
    try:
        prompts = ["a river is cold", "rain falls on stone the bank"]
        before = engine.embed(prompts).vectors
        assert adapter.settle(200)
        after = engine.embed(prompts).vectors
    finally:
        engine.close()
    assert (adapter.asked["rope"], adapter.asked["rms_norm"]) == ({"inductor"}, {"eager"})
    assert [*tmp_path.rglob("*.so")]
    assert torch.nn.functional.cosine_similarity(before, after).min() > 0.9999


def test_compilation_without_a_place_for_it_leaves_the_adapter_s_preference(folder: Path) -> None:
    adapter = ListeningAdapter()
    engine = load_engine(folder, adapter, compile=COMPILED)
    engine.close()
    assert adapter.asked["rope"] == {"blocked"}


INDUCTOR = Compile(enabled=True, mode="default", backend="inductor", reason="bench saw a gain")


def test_what_cannot_be_compiled_here_runs_as_the_adapter_prefers_and_that_is_said(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    adapter = ListeningAdapter()
    engine = load_engine(folder, adapter, primitives={"rope": "inductor"}, compile=INDUCTOR)
    engine.close()
    assert any(line.startswith("rope is not compiled here: it runs as ") for line in caplog.messages)


def test_without_compilation_nothing_compiled_is_asked_for(folder: Path) -> None:
    config = make_config(read_folder(folder), primitives={"rope": "inductor", "linear": "aten"}, compile=INDUCTOR)
    assert compiling(config, compiles=False).primitives == {"linear": "aten"}
    assert compiling(config, compiles=True) == compiling(config, compiles=None) == config
    eager = compiling(config, compiles=False)
    assert compiling(replace(eager, primitives={}), compiles=True).compile.backend == "inductor"
