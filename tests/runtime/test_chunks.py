"""Long prompts in chunks: the same vectors, short prompts in between, nothing held afterwards."""

import gc
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.runtime.qwen3 import MAX_LEN, write_qwen3
from tests.runtime.support import CPU, FaultyAdapter, load_engine, make_config, wait_until
from vllm_probe.core.errors import BadUsage
from vllm_probe.core.progress import silent
from vllm_probe.models.hf import read_folder
from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.executor.embedder import load_embedder
from vllm_probe.runtime.modeling.context import Context
from vllm_probe.runtime.sched.request import Chunk, Prompt, Request, RequestFailed, StepPlan

LENGTHS = (15, 16, 17, 63, 64, 65, 130, 300, MAX_LEN - 1, MAX_LEN)
Load = Callable[..., tuple[Engine, FaultyAdapter]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen3 of four layers that knows few words."""
    return write_qwen3(tmp_path_factory.mktemp("chunks"), vocab_size=2000)


@pytest.fixture
def load(folder: Path) -> Iterator[Load]:
    """Loads it on a `FaultyAdapter` with chunks of 16 and config changes; closed at the end."""
    engines: list[Engine] = []

    def loader(**changes: Any) -> tuple[Engine, FaultyAdapter]:
        adapter = FaultyAdapter(layers=4)
        engines.append(load_engine(folder, adapter, **{"prefill_chunk_size": 16, **changes}))
        return engines[-1], adapter

    yield loader
    for engine in engines:
        engine.close()


def ids(length: int) -> list[int]:
    return random.Random(length).choices(range(2000), k=length)


def steps_of(engine: Engine) -> list[tuple[int, ...]]:
    """Lengths of the steps from now on."""
    steps: list[tuple[int, ...]] = []
    engine.observers.append(lambda plan, _: steps.append(plan.lengths))
    return steps


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_vectors_are_the_same_in_chunks_of_any_size(load: Load, dtype: str) -> None:
    inputs = [ids(length) for length in LENGTHS]
    whole = load(dtype=dtype, prefill_chunk_size=MAX_LEN)[0].embed(inputs).vectors
    for size in (16, 64):
        engine, _ = load(dtype=dtype, prefill_chunk_size=size)
        steps = steps_of(engine)
        found = engine.embed(inputs).vectors
        assert max(map(sum, steps)) == size
        if dtype == "float32":
            assert (found - whole).abs().max() <= 1e-6
        else:
            assert (found * whole).sum(1).min() >= 0.9999


@pytest.mark.parametrize("implementation", ["sdpa", "bmm"])
def test_each_attention_computes_chunks(load: Load, implementation: str) -> None:
    item, primitives = [ids(100)], {"attention": implementation}
    whole = load(prefill_chunk_size=MAX_LEN, primitives=primitives)[0].embed(item).vectors
    assert (load(primitives=primitives)[0].embed(item).vectors - whole).abs().max() <= 1e-6


def test_short_prompts_are_answered_between_the_chunks_of_a_long_one(load: Load) -> None:
    engine, adapter = load()
    alone, steps = engine.embed([ids(64)]).vectors, steps_of(engine)
    adapter.gate.clear()
    long = engine.submit(engine.prepare([ids(64)]))
    wait_until(lambda: engine.queue_state().running == 1)
    shorts = [engine.submit(engine.prepare([ids(length)])) for length in (9, 4, 5)]
    order: list[Any] = []
    for future in (long, *shorts):
        future.add_done_callback(order.append)
    adapter.gate.set()
    assert torch.equal(long.result(60).vectors, alone)
    assert steps == [(16,), (4, 9), (16,), (5,), (16,), (16,)]
    assert order[-1] is long
    assert all(future.done() for future in shorts)


def test_a_cancelled_prompt_stops_at_the_next_chunk(load: Load) -> None:
    engine, adapter = load()
    steps = steps_of(engine)
    adapter.gate.clear()
    long = engine.submit(engine.prepare([ids(64)]))
    wait_until(lambda: engine.queue_state().running == 1)
    long.cancel()
    adapter.gate.set()
    engine.embed([ids(20)])
    assert steps == [(16,), (16,), (4,)]
    assert engine.queue_state().waiting_tokens == 0


def test_nothing_is_held_of_a_prompt_that_is_done_or_given_up(load: Load) -> None:
    engine, adapter = load()
    engine.embed([ids(64)])
    adapter.gate.clear()
    long = engine.submit(engine.prepare([ids(64)]))
    wait_until(lambda: engine.queue_state().running == 1)
    long.cancel()
    adapter.gate.set()
    wait_until(lambda: not any(type(item) is Context for item in gc.get_objects()))


def test_a_chunk_that_fails_fails_its_request_alone(load: Load) -> None:
    engine, adapter = load()
    adapter.faults[48] = RuntimeError("out of luck")
    with pytest.raises(RequestFailed, match="the model failed on this input"):
        engine.embed([ids(64)])
    adapter.faults.clear()
    adapter.faults[20] = float("nan")
    with pytest.raises(RequestFailed, match="not finite"):
        engine.embed([ids(20)])
    adapter.faults.clear()
    assert engine.embed([ids(64), ids(20)]).vectors.isfinite().all()


def test_a_prompt_may_be_longer_than_a_step(load: Load) -> None:
    engine, _ = load(max_num_batched_tokens=32, prefill_chunk_size=64)
    steps = steps_of(engine)
    assert engine.embed([ids(MAX_LEN)]).prompt_tokens == MAX_LEN
    assert max(map(sum, steps)) == 32


def test_where_all_tokens_are_pooled_a_prompt_is_computed_whole(load: Load) -> None:
    pooling = {"type": "mean", "normalize": True}
    with pytest.raises(BadUsage, match="max_num_batched_tokens 511 is less than max_model_len 512"):
        load(pooling=pooling, max_num_batched_tokens=511)
    engine, _ = load(pooling=pooling)
    steps = steps_of(engine)
    engine.embed([ids(50), ids(4)])
    assert steps == [(4,), (50,)]


def test_the_context_lives_as_long_as_its_prompt(folder: Path) -> None:
    spec, adapter = read_folder(folder), FaultyAdapter()
    adapter.set_device(CPU)
    adapter.open()
    embedder = load_embedder(make_config(spec), spec, adapter, "auto", silent)
    for is_given_up in (False, True):
        prompt = Prompt(Request(prompts=(tuple(ids(40)),)), 0)
        first = embedder.run(StepPlan((Chunk(prompt, 0, 16),)))
        assert (first.shape, [*embedder.contexts]) == ((0, spec.hidden_size), [prompt])
        embedder.forget_done()
        assert [*embedder.contexts] == [prompt]
        if is_given_up:
            prompt.request.future.cancel()
            embedder.forget_done()
        else:
            assert embedder.run(StepPlan((Chunk(prompt, 16, 40),))).shape == (1, spec.hidden_size)
        assert embedder.contexts == {}
    adapter.close()
