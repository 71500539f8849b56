"""Failures stay where they belong; cancellation, health and the end."""

import threading

import pytest
import torch

from tests.runtime.support import Load, ids, wait_until
from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.sched.request import QueueClosed, QueueFull, RequestFailed


def test_a_failing_prompt_fails_its_request_alone(load: Load) -> None:
    engine, adapter = load()
    adapter.faults[7] = RuntimeError("out of luck")
    adapter.gate.clear()
    futures = [engine.submit(engine.prepare(ids(*lengths))) for lengths in ((3,), (4, 7), (5, 6))]
    adapter.gate.set()
    assert futures[0].result(60).vectors.isfinite().all()
    with pytest.raises(RequestFailed, match="the model failed on this input"):
        futures[1].result(60)
    assert torch.equal(futures[2].result(60).vectors, engine.embed(ids(5, 6)).vectors)


def test_a_vector_that_is_not_finite_never_leaves(load: Load) -> None:
    engine, adapter = load()
    adapter.faults[7] = float("nan")
    adapter.gate.clear()
    futures = [engine.submit(engine.prepare(ids(*lengths))) for lengths in ((3,), (7, 7), (5,))]
    adapter.gate.set()
    with pytest.raises(RequestFailed, match="not finite") as failed:
        futures[1].result(60)
    assert failed.value.reason == "non_finite"
    assert all(futures[index].result(60).vectors.isfinite().all() for index in (0, 2))


def test_after_a_failure_everything_works(load: Load) -> None:
    engine, adapter = load()
    adapter.faults[7] = MemoryError()
    with pytest.raises(RequestFailed):
        engine.embed(ids(7))
    for length in range(8, 40):
        assert engine.embed(ids(length)).prompt_tokens == length
    assert engine.queue_state().waiting_tokens == 0
    assert engine.unhealthy() is None


def test_a_cancelled_request_is_never_computed(load: Load) -> None:
    engine, adapter = load(max_num_batched_tokens=64)
    adapter.gate.clear()
    running = engine.submit(engine.prepare(ids(64)))
    wait_until(lambda: engine.queue_state().running == 1)
    waiting = engine.submit(engine.prepare(ids(33)))
    assert waiting.cancel()
    assert engine.queue_state().waiting_tokens == 0
    adapter.gate.set()
    running.result(60)
    engine.embed(ids(5))
    assert (33,) not in adapter.steps


def test_a_running_request_stops_at_the_next_chunk(load: Load) -> None:
    engine, adapter = load(prefill_chunk_size=20)
    adapter.gate.clear()
    future = engine.submit(engine.prepare(ids(20, 21, 22)))
    wait_until(lambda: engine.queue_state().running == 1)
    future.cancel()
    adapter.gate.set()
    engine.embed(ids(5))
    assert (21,) not in adapter.steps
    assert engine.queue_state().running == 0


def test_a_full_queue_refuses(load: Load) -> None:
    engine, adapter = load(queue=100, max_num_batched_tokens=64)
    adapter.gate.clear()
    futures = [engine.submit(engine.prepare(ids(64)))]
    wait_until(lambda: engine.queue_state().running == 1)
    futures.append(engine.submit(engine.prepare(ids(60))))
    with pytest.raises(QueueFull, match="60 tokens are waiting, the limit is 100"):
        engine.embed(ids(41))
    adapter.gate.set()
    assert [future.result(60).prompt_tokens for future in futures] == [64, 60]


def test_what_was_admitted_is_answered_after_admission_stopped(load: Load) -> None:
    engine, adapter = load(max_num_batched_tokens=64)
    adapter.gate.clear()
    futures = [engine.submit(engine.prepare(ids(60))) for _ in range(4)]
    engine.stop_admitting()
    assert engine.unhealthy() == "the engine is draining"
    with pytest.raises(QueueClosed):
        engine.embed(ids(1))
    adapter.gate.set()
    assert [future.result(60).prompt_tokens for future in futures] == [60] * 4
    wait_until(lambda: engine.unhealthy() == "the engine loop has ended")


def test_closing_fails_what_waits(load: Load) -> None:
    engine, adapter = load(max_num_batched_tokens=64)
    adapter.gate.clear()
    futures = [engine.submit(engine.prepare(ids(60))) for _ in range(3)]
    closing = threading.Thread(target=engine.close)
    closing.start()
    for future in futures:
        with pytest.raises(QueueClosed, match="the engine was closed"):
            future.result(60)
    assert closing.is_alive()
    adapter.gate.set()
    closing.join()


def test_a_loop_that_does_not_move_is_not_healthy(load: Load) -> None:
    engine, adapter = load()
    engine.stall_s = 0.05
    adapter.gate.clear()
    future = engine.submit(engine.prepare(ids(5)))
    wait_until(lambda: "has not moved" in (engine.unhealthy() or ""))
    engine.stall_s = Engine.stall_s
    adapter.gate.set()
    future.result(60)
    assert engine.unhealthy() is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_loop_that_died_is_not_healthy_and_leaves_nobody_waiting(load: Load) -> None:
    engine, adapter = load()
    adapter.faults[7] = KeyboardInterrupt()
    with pytest.raises(RequestFailed, match="the engine loop has ended"):
        engine.embed(ids(7))
    wait_until(lambda: engine.unhealthy() == "the engine loop has ended")
    with pytest.raises(QueueClosed):
        engine.embed(ids(3))


def test_identical_inputs_and_six_thousand_of_them(load: Load) -> None:
    engine, _ = load()
    found = engine.embed([[4, 5, 6]] * 6000)
    assert found.vectors.shape == (6000, 32)
    assert (found.vectors - found.vectors[0]).abs().max() <= 1e-6
