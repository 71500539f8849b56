"""The engine: what the config does, what it refuses, and how failures stay where they belong."""

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.runtime.support import CPU, FaultyAdapter, load_engine, make_config
from vllm_probe.core.errors import (
    AdapterOutOfOrder,
    BadUsage,
    DeviceUnavailable,
    InvalidModel,
    SchemaViolation,
    UnsupportedModel,
    WeightsUnavailable,
)
from vllm_probe.models.hf import read_folder
from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.sched.request import QueueClosed, QueueFull, RequestError, RequestFailed

Load = Callable[..., tuple[Engine, FaultyAdapter]]


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


def ids(*lengths: int) -> list[list[int]]:
    return [[4 + position % 12 for position in range(length)] for length in lengths]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# What the fields of the config do.


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


# What is refused at load.


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"quantization": "int8"}, UnsupportedModel, "quantization int8"),
        ({"tensor_parallel_size": 2}, UnsupportedModel, "2 devices"),
        ({"max_num_batched_tokens": 63}, BadUsage, "max_num_batched_tokens 63 is less than max_model_len 64"),
        ({"max_model_len": 65, "max_num_batched_tokens": 128}, BadUsage, "more than the 64 positions"),
        ({"primitives": {"linear": "magic"}}, BadUsage, "no implementation 'magic' of linear"),
        ({"dtype": "float16"}, BadUsage, "/dtype: the bundled engine does not compute in 'float16'"),
        ({"dtype": "float8"}, BadUsage, "/dtype: the bundled engine does not compute in 'float8'"),
        ({"pooling": {"type": "max", "normalize": True}}, SchemaViolation, "/pooling/type: must be .*, not 'max'"),
        ({"pooling": {"type": ["cls"]}}, SchemaViolation, "/pooling/type: must be .*'cls'"),
        ({"pooling": {"type": None}}, SchemaViolation, "/pooling/type: must be .*, not None"),
        ({"pooling": {"type": "cls", "normalize": "no"}}, SchemaViolation, "/pooling/normalize: must be .*, not 'no'"),
        ({"pooling": {"normalize": 0}}, SchemaViolation, "/pooling/normalize: must be true or false, not 0"),
        ({"threads": 5}, BadUsage, "/threads: 5 threads are more than the 4 logical CPUs of cpu0"),
        ({"threads": 10**12}, BadUsage, "/threads"),
    ],
)
def test_a_config_that_cannot_run_is_refused(
    tiny: Path, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    adapter = FaultyAdapter()
    with pytest.raises(error, match=message):
        load_engine(tiny, adapter, **changes)
    with pytest.raises(AdapterOutOfOrder):
        adapter.memory()


def test_a_number_format_that_the_device_lacks_is_refused(tiny: Path) -> None:
    class Exact(FaultyAdapter):
        linears: ClassVar = {"fp32": ("aten",)}

    with pytest.raises(DeviceUnavailable, match="cpu0 has no linear in bf16"):
        load_engine(tiny, Exact(), dtype="bfloat16")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"architecture": "LlamaForCausalLM"}, "architecture LlamaForCausalLM"),
        ({"architecture": "Qwen3ForCausalLM", "pooling": None}, "text generation"),
    ],
)
def test_what_only_vllm_runs_is_offered_to_it(tiny: Path, change: dict[str, Any], reason: str) -> None:
    spec = replace(read_folder(tiny), **change)
    adapter = FaultyAdapter()
    adapter.set_device(CPU)
    with pytest.raises(UnsupportedModel, match=reason) as refused:
        Engine.load(make_config(spec), spec, adapter)
    assert "--engine vllm" in refused.value.hint


@pytest.mark.parametrize(("change", "reason"), [({"activation": "relu"}, "relu"), ({"projections": (4,)}, "linears")])
def test_an_encoder_of_another_kind_is_refused(tiny: Path, change: dict[str, Any], reason: str) -> None:
    spec = replace(read_folder(tiny), **change)
    adapter = FaultyAdapter()
    adapter.set_device(CPU)
    with pytest.raises(UnsupportedModel, match=reason):
        Engine.load(make_config(spec), spec, adapter)


def test_a_shape_without_weights_is_refused(tiny: Path) -> None:
    spec = replace(read_folder(tiny), weights_path=None)
    adapter = FaultyAdapter()
    adapter.set_device(CPU)
    with pytest.raises(WeightsUnavailable):
        Engine.load(make_config(spec), spec, adapter)


@pytest.mark.parametrize("damage", ["missing", "shape", "none", "tokenizer"])
def test_damaged_files_are_named(tiny: Path, tmp_path: Path, damage: str) -> None:
    spec = replace(read_folder(tiny), weights_path=str(tmp_path), folder=str(tmp_path))
    tensors = load_file(tiny / "model.safetensors")
    name = "encoder.layer.1.output.dense.weight"
    if damage == "missing":
        del tensors[name]
    if damage == "shape":
        tensors[name] = tensors[name].t().contiguous()
    if damage == "none":
        tensors = {"other": torch.zeros(1)}
    save_file(tensors, tmp_path / "model.safetensors")
    if damage == "tokenizer":
        (tmp_path / "tokenizer.json").write_text("{}")
    adapter = FaultyAdapter()
    adapter.set_device(CPU)
    wanted = {"none": "word_embeddings", "tokenizer": "tokenizer.json"}.get(damage, name)
    with pytest.raises(InvalidModel, match=wanted):
        Engine.load(make_config(spec), spec, adapter)


def test_shards_and_prefixed_names_are_read(tiny: Path, tmp_path: Path, load: Load, tiny_engine: Engine) -> None:
    folder = tmp_path / "sharded"
    shutil.copytree(tiny, folder, ignore=shutil.ignore_patterns("model.safetensors"))
    tensors = {f"bert.{name}": tensor for name, tensor in load_file(tiny / "model.safetensors").items()}
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[:9], "model-00002-of-00002.safetensors": names[9:]}
    for file, members in shards.items():
        save_file({name: tensors[name] for name in members}, folder / file)
    weight_map = {name: file for file, members in shards.items() for name in members}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert torch.equal(load(folder)[0].embed(ids(12)).vectors, tiny_engine.embed(ids(12)).vectors)


# What is refused per request.


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        ([], {}, "input is empty"),
        ([""], {}, "input 0 is empty"),
        (["a", []], {}, "input 1 is empty"),
        ([[3, 16]], {}, "token ids outside 0 to 15"),
        ([[-1]], {}, "token ids outside 0 to 15"),
        (["\ud800"], {}, "not valid Unicode"),
        (["a " * 63], {}, "maximum context length is 64 tokens, but input 0 has 65"),
        (["a " * 2049], {}, "is 64 tokens, but input 0 has 4098 characters, where 4096 are looked at"),
        (["a"], {"truncate_prompt_tokens": 65}, "must be -1 or between 3 and 64, not 65"),
        (["a"], {"truncate_prompt_tokens": 0}, "must be -1 or between 3 and 64, not 0"),
        (["a"], {"dimensions": 16}, "32 dimensions"),
    ],
)
def test_a_request_that_means_nothing_is_refused(
    tiny_engine: Engine, inputs: list[Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError, match=message):
        tiny_engine.embed(inputs, **options)


@pytest.mark.parametrize("side", ["left", "right"])
def test_of_an_endless_text_only_a_part_is_tokenized(tiny_engine: Engine, side: Any) -> None:
    part, rest = "the river " * 410, "\ud800" * 1000  # what is tokenized must be Unicode, the rest is not looked at
    found = tiny_engine.embed(
        [rest + part if side == "left" else part + rest], truncate_prompt_tokens=-1, truncation_side=side
    )
    assert (found.num_truncated, found.prompt_tokens) == (1, 64)
    short = tiny_engine.embed(["the river " * 40], truncate_prompt_tokens=-1, truncation_side=side)
    assert torch.equal(found.vectors, short.vectors)


def test_an_endless_text_of_few_tokens_counts_as_cut(tiny_engine: Engine) -> None:
    found = tiny_engine.embed([" " * 10_000 + "river"], truncate_prompt_tokens=-1)
    assert (found.num_truncated, found.prompt_tokens) == (1, 2)


def test_the_first_token_ids_are_remarked_once(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    engine, _ = load()
    engine.embed("the river")
    assert "token ids" not in caplog.text
    for _ in range(2):
        engine.embed([[4, 5]])
    assert caplog.text.count("come from this model's tokenizer") == 1


def test_one_text_needs_no_list(tiny_engine: Engine) -> None:
    assert tiny_engine.embed("the river").vectors.shape == (1, 32)


def test_one_list_of_token_ids_needs_no_list(tiny_engine: Engine) -> None:
    one, listed = tiny_engine.embed([1, 8, 5, 2]), tiny_engine.embed([[1, 8, 5, 2]])
    assert (one.prompt_tokens, one.vectors.tolist()) == (4, listed.vectors.tolist())


def test_a_result_is_shown_without_its_bytes(tiny_engine: Engine) -> None:
    shown = repr(tiny_engine.embed("the river"))
    assert shown.startswith("Embeddings(dimensions=32, prompt_tokens=4, ")
    assert "data" not in shown


def test_its_own_width_may_be_asked_for(tiny_engine: Engine) -> None:
    assert tiny_engine.embed("the river", dimensions=32).dimensions == 32


def test_cut_token_ids_keep_their_last_special_token(tiny_engine: Engine) -> None:
    whole, cut = [1, 4, 5, 6, 7, 2], [1, 4, 5, 2]
    found = tiny_engine.embed([whole], truncate_prompt_tokens=4)
    assert found.num_truncated == 1
    assert torch.equal(found.vectors, tiny_engine.embed([cut]).vectors)


def test_cut_token_ids_without_special_tokens_lose_their_end(tiny_engine: Engine) -> None:
    found = tiny_engine.embed([[4, 5, 6, 7]], truncate_prompt_tokens=3)
    assert torch.equal(found.vectors, tiny_engine.embed([[4, 5, 6]]).vectors)


def test_without_a_tokenizer_only_token_ids_are_taken(
    tiny_engine: Engine, tiny: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "model.safetensors").write_bytes((tiny / "model.safetensors").read_bytes())
    spec = replace(read_folder(tiny), weights_path=str(tmp_path), folder=str(tmp_path))
    adapter = FaultyAdapter()
    adapter.set_device(CPU)
    engine = Engine.load(make_config(spec), spec, adapter)
    assert (tiny_engine.reads_text, engine.reads_text) == (True, False)
    assert "no tokenizer.json here: only token ids are taken" in caplog.text
    assert engine.embed([[4, 5]]).prompt_tokens == 2
    with pytest.raises(RequestError, match=r"no tokenizer\.json here: send token ids"):
        engine.embed("river")
    engine.close()


# Failures, cancellation, the end.


def test_a_failing_prompt_fails_its_request_alone(load: Load) -> None:
    engine, adapter = load()
    adapter.faults[7] = RuntimeError("out of luck")
    adapter.gate.clear()
    futures = [engine.submit(engine.prepare(ids(*lengths))) for lengths in ((3,), (4, 7), (5, 6))]
    adapter.gate.set()
    assert futures[0].result(20).vectors.isfinite().all()
    with pytest.raises(RequestFailed, match="the model failed on this input"):
        futures[1].result(20)
    assert torch.equal(futures[2].result(20).vectors, engine.embed(ids(5, 6)).vectors)


def test_a_vector_that_is_not_finite_never_leaves(load: Load) -> None:
    engine, adapter = load()
    adapter.faults[7] = float("nan")
    adapter.gate.clear()
    futures = [engine.submit(engine.prepare(ids(*lengths))) for lengths in ((3,), (7, 7), (5,))]
    adapter.gate.set()
    with pytest.raises(RequestFailed, match="not finite") as failed:
        futures[1].result(20)
    assert failed.value.reason == "non_finite"
    assert all(futures[index].result(20).vectors.isfinite().all() for index in (0, 2))


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
    running.result(20)
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
    assert [future.result(20).prompt_tokens for future in futures] == [64, 60]


def test_what_was_admitted_is_answered_after_admission_stopped(load: Load) -> None:
    engine, adapter = load(max_num_batched_tokens=64)
    adapter.gate.clear()
    futures = [engine.submit(engine.prepare(ids(60))) for _ in range(4)]
    engine.stop_admitting()
    assert engine.unhealthy() == "the engine is draining"
    with pytest.raises(QueueClosed):
        engine.embed(ids(1))
    adapter.gate.set()
    assert [future.result(20).prompt_tokens for future in futures] == [60] * 4
    wait_until(lambda: engine.unhealthy() == "the engine loop has ended")


def test_closing_fails_what_waits(load: Load) -> None:
    engine, adapter = load(max_num_batched_tokens=64)
    adapter.gate.clear()
    futures = [engine.submit(engine.prepare(ids(60))) for _ in range(3)]
    threading.Timer(0.05, adapter.gate.set).start()
    engine.close()
    for future in futures:
        with pytest.raises(QueueClosed, match="the engine was closed"):
            future.result(20)


def test_a_loop_that_does_not_move_is_not_healthy(load: Load) -> None:
    engine, adapter = load()
    engine.stall_s = 0.05
    adapter.gate.clear()
    future = engine.submit(engine.prepare(ids(5)))
    wait_until(lambda: "has not moved" in (engine.unhealthy() or ""))
    engine.stall_s = Engine.stall_s
    adapter.gate.set()
    future.result(20)
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
