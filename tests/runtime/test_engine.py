"""The engine: what the fields of the config do."""

import pytest
import torch

from tests.runtime.support import Load, ids, wait_until
from vllm_probe.runtime.sched.request import RequestError


def test_dtype_decides_the_number_format(load: Load) -> None:
    exact, rounded = (load(dtype=dtype)[0].embed(ids(20)).vectors for dtype in ("float32", "bfloat16"))
    assert not torch.equal(exact, rounded)
    assert (exact * rounded).sum() > 0.999


def test_max_model_len_limits_the_prompt(load: Load) -> None:
    engine, _ = load(max_model_len=8)
    assert engine.embed(ids(8)).prompt_tokens == 8
    with pytest.raises(RequestError, match="maximum context length is 8 tokens, but input 1 has 9"):
        engine.embed(ids(3, 9))


def test_max_num_batched_tokens_limits_the_step(load: Load) -> None:
    engine, adapter = load(max_num_batched_tokens=64)
    done = len(adapter.steps)
    engine.embed(ids(30, 30, 30, 30))
    assert adapter.steps[done:] == [(30, 30), (30, 30)]


def test_max_num_seqs_limits_the_step(load: Load) -> None:
    engine, adapter = load(max_num_seqs=3)
    done = len(adapter.steps)
    engine.embed(ids(2, 2, 2, 2))
    assert adapter.steps[done:] == [(2, 2, 2), (2,)]


def test_prefill_chunk_size_limits_what_is_computed_together(load: Load) -> None:
    engine, adapter = load(prefill_chunk_size=20)
    done = len(adapter.steps)
    engine.embed(ids(12, 50, 8, 9))
    assert adapter.steps[done:] == [(8, 9), (12,), (50,)]


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_those_of_the_loop(load: Load, threads: int) -> None:
    engine, _ = load(threads=threads)
    seen: list[int] = []
    engine.observers.append(lambda plan, seconds: seen.append(torch.get_num_threads()))
    engine.embed(ids(3))
    wait_until(lambda: seen == [threads])


def test_primitives_choose_the_implementation(load: Load) -> None:
    assert set(load(primitives={"linear": "aten"})[1].implementations_used) == {"aten"}


def test_without_primitives_the_adapter_prefers(load: Load) -> None:
    _, adapter = load()
    assert set(adapter.implementations_used) == {adapter.implementations_used[0]} != {"aten"}


def test_pooling_decides_the_vector(load: Load) -> None:
    mean, cls = (load(pooling={"type": kind, "normalize": True})[0].embed(ids(9)).vectors for kind in ("mean", "cls"))
    assert (mean - cls).abs().max() > 0.01


def test_vectors_are_scaled_only_where_the_config_says_so(load: Load) -> None:
    raw = load(pooling={"type": "mean", "normalize": False})[0].embed(ids(9)).vectors
    unit = load(pooling={"type": "mean", "normalize": True})[0].embed(ids(9)).vectors
    assert raw.norm() > 1.5
    assert torch.allclose(raw / raw.norm(), unit, atol=1e-6)


def test_the_model_is_warm_when_loading_is_over(load: Load) -> None:
    _, adapter = load(max_num_batched_tokens=128)
    assert adapter.steps == [(1,), (64,), (64, 64)]
