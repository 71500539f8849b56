"""The engine: one thread that owns the device, fed with prompts by any other."""

import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import Unpack, cast

import torch

from vllm_probe.core.config import RuntimeConfig
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.progress import Progress, silent
from vllm_probe.runtime.executor.admission import check_runnable, limit_width
from vllm_probe.runtime.executor.embedder import Embedder, LoadFormat, chunks_prompts, load_embedder, pooling_of
from vllm_probe.runtime.executor.result import Embeddings, check_dimensions, collect, to_bytes
from vllm_probe.runtime.modeling.tokenizing import Input, PromptReader, Prompts, Reading
from vllm_probe.runtime.sched.backlog import Limits
from vllm_probe.runtime.sched.queue import QueueState, RequestQueue
from vllm_probe.runtime.sched.request import QueueClosed, Request, RequestFailed, StepPlan
from vllm_probe.vendors.torchbase import TorchAdapter

StepObserver = Callable[[StepPlan, float], None]

_TICK_S = 1.0
_WAITING_STEPS = 32
_STEP_ERRORS = (RuntimeError, ValueError, LookupError, ArithmeticError, MemoryError)
_log = logging.getLogger(__name__)


class Engine:
    """A model on a device; made by `load`, safe to use from any thread.

    Attributes:
        has_dummy_weights: the weights are random, so that vectors mean nothing.
        reader: from texts and token ids to prompts, and back.
        reads_text: there is a tokenizer; without one only token ids are taken.
        stall_s: silence of the loop after which the engine is not healthy, at least four times its slowest step.
        observers: called in the loop thread with every step and its seconds.
    """

    stall_s = 10.0

    def __init__(
        self,
        config: RuntimeConfig,
        spec: ModelSpec,
        adapter: TorchAdapter,
        load: Callable[[], Embedder],
        max_waiting_tokens: int,
    ) -> None:
        """Starts the loop thread, which opens the adapter and loads the model."""
        self.config, self.spec = config, spec
        self.has_dummy_weights = False
        self.observers: list[StepObserver] = []
        pooling, self._normalizes = pooling_of(config, spec)
        self.reader = PromptReader(spec, config.max_model_len, pooling)
        self.reads_text = self.reader.reads_text
        self._part_tokens = min(config.prefill_chunk_size, config.max_num_batched_tokens)
        self._queue = RequestQueue(
            Limits(
                max_num_seqs=config.max_num_seqs,
                max_num_batched_tokens=config.max_num_batched_tokens,
                max_waiting_tokens=max_waiting_tokens,
                chunk_tokens=self._part_tokens if chunks_prompts(spec, pooling) else None,
            )
        )
        self._ticked_s, self._slowest_s = time.monotonic(), 0.0
        self._loaded: Future[None] = Future()
        self._thread = threading.Thread(target=self._own, args=(adapter, load), name="engine-loop", daemon=True)
        self._thread.start()

    @classmethod
    def load(
        cls,
        config: RuntimeConfig,
        spec: ModelSpec,
        adapter: TorchAdapter,
        progress: Progress = silent,
        *,
        load_format: LoadFormat = "auto",
        max_waiting_tokens: int | None = None,
    ) -> "Engine":
        """Opens `adapter`, loads the weights, warms up; the engine is ready when it returns.

        Args:
            config: what to run and how.
            spec: the model, with its folder of weights.
            adapter: the device, set and not open; closed again by `close`.
            progress: told about each layer, from the engine's thread.
            load_format: `dummy` for seeded random weights; others take the checkpoint's safetensors.
            max_waiting_tokens: size of the queue, default 32 full steps; it is never more than 24 s of work.

        Raises:
            UnsupportedModel: an architecture or quantization that only another engine runs.
            WeightsUnavailable: the model is only a shape.
            DeviceUnavailable: the device does not compute in the number format.
            BadUsage: limits that contradict each other, the model or the device; a number format or an implementation
                that does not exist.
            SchemaViolation: a pooling that does not exist.
            InvalidModel: damaged weights or tokenizer.
        """
        check_runnable(config, spec, adapter.device, load_format)
        waiting = max_waiting_tokens or _WAITING_STEPS * config.max_num_batched_tokens
        report: Progress = lambda step, done, total: progress(step, done, total + 1)  # noqa: E731
        load = partial(load_embedder, config, spec, adapter, load_format, report)
        engine = cls(config, spec, adapter, load, waiting)
        if load_format == "dummy":
            engine.has_dummy_weights = True
            _log.warning("%s has dummy weights: its vectors mean nothing", spec.name)
        if not engine.reads_text:
            _log.warning("%s has no tokenizer.json here: only token ids are taken", spec.name)
        engine._loaded.result()
        with ExitStack() as undo:
            undo.callback(engine.close)
            progress("warming up", spec.num_layers + 1, spec.num_layers + 2)
            engine.warm_up()
            undo.pop_all()
        progress("ready", spec.num_layers + 2, spec.num_layers + 2)
        return engine

    def warm_up(self) -> None:
        """Runs the shortest prompt, a long one and a full step, so that no user pays for first calls."""
        full, longest = self._part_tokens, min(self.config.max_model_len, self._part_tokens)
        length = min(128, self.config.max_model_len)
        count = max(1, min(self.config.max_num_seqs, full // length))
        for prompts in ([[0]], [[0] * longest], [[0] * length] * count):
            self.submit(Prompts(tuple(prompts), 0)).result()

    def embed(self, inputs: str | Sequence[Input] | Sequence[int], **reading: Unpack[Reading]) -> Embeddings:
        """Vectors of texts or token ids.

        Args:
            inputs: texts, or lists of token ids with their special tokens; one of either is taken as well.
            reading: truncation, prompt, special tokens, and what is wanted of the vectors, see `Reading`.

        Raises:
            RequestError: an input that the model cannot take, or more than can be computed in time.
            QueueFull: too much waits.
            QueueClosed: the engine is closed.
            RequestFailed: the computation failed.
        """
        is_one = isinstance(inputs, str) or (len(inputs) > 0 and isinstance(inputs[0], int))
        listed = cast("Sequence[Input]", [inputs] if is_one else inputs)
        return self.submit(self.prepare(listed, **reading)).result()

    def prepare(self, inputs: Sequence[Input], **reading: Unpack[Reading]) -> Prompts:
        """The tokenized `inputs`, checked; arguments and errors as for `embed`."""
        parts = self.prepare_in_parts(inputs, **reading)
        while True:
            try:
                next(parts)
            except StopIteration as end:
                return cast("Prompts", end.value)

    def prepare_in_parts(self, inputs: Sequence[Input], **reading: Unpack[Reading]) -> Generator[int, None, Prompts]:
        """As `prepare`, in parts of 1024 tokens and more; gives how many there are so far after each."""
        check_dimensions(self.spec, reading.get("dimensions"))
        return (yield from self.reader.read(inputs, **reading))

    def check_room(self, num_bytes: int, num_tokens: int = 0) -> None:
        """Refuses as `submit` will, before more is spent on reading a request of `num_bytes`.

        Args:
            num_bytes: size of what is to be read.
            num_tokens: what was read of it so far.

        Raises:
            RequestError: it would take longer than a request may.
            QueueFull: too much waits.
            QueueClosed: the engine is closed or drains.
        """
        self._queue.check_room(num_bytes, num_tokens)

    def submit(self, prompts: Prompts, num_bytes: int = 0) -> Future[Embeddings]:
        """Queues `prompts`, read from `num_bytes`; cancelling the future drops what has not run.

        Raises:
            RequestError: it would take longer than a request may.
            QueueFull: too much waits.
            QueueClosed: the engine is closed or drains.
        """
        request = Request(
            prompts=prompts.token_ids,
            num_bytes=num_bytes,
            num_truncated=prompts.num_truncated,
            dimensions=prompts.dimensions,
            normalizes=prompts.normalizes,
        )
        self._queue.submit(request)
        request.future.add_done_callback(lambda _: self._queue.cancel(request))
        return request.future

    def queue_state(self) -> QueueState:
        """What waits and runs now."""
        return self._queue.state()

    def unhealthy(self) -> str | None:
        """Why the engine cannot be expected to answer, or null."""
        silence_s = time.monotonic() - self._ticked_s
        if not self._thread.is_alive():
            return "the engine loop has ended"
        if silence_s > max(self.stall_s, 4 * self._slowest_s):
            return f"the engine loop has not moved for {silence_s:.0f} s"
        return "the engine is draining" if self._queue.state().closed else None

    def stop_admitting(self) -> None:
        """Refuses new requests; those admitted are still computed, and the engine is not healthy any more."""
        self._queue.close()

    def abort(self) -> None:
        """Refuses new requests and fails those that are not complete."""
        self._fail(self._queue.abort(), QueueClosed("the engine was closed"))

    def close(self) -> None:
        """As `abort`, then waits for the step that runs; the adapter is closed when it returns."""
        self.abort()
        self._thread.join()

    def _own(self, adapter: TorchAdapter, load: Callable[[], Embedder]) -> None:
        """All that touches the device, in one thread from open to close.

        A second thread that computes, if only to load, has OpenMP threads of its own; with more of them than
        processors libgomp stops spinning, and each operator pays about 40 us to wake its helpers.
        """
        try:
            limit_width(adapter, self.config.group_width)
            adapter.open()
            if self.config.threads:
                torch.set_num_threads(self.config.threads)
            with adapter.loading():
                embedder = load()
        except Exception as error:  # noqa: BLE001 - raised again where `load` waits
            adapter.close()
            self._loaded.set_exception(error)
            return
        self._loaded.set_result(None)
        try:
            while (plan := self._queue.next_step(_TICK_S)) is not None:
                for part in plan.split(self._part_tokens):
                    self._step(embedder, part)
                embedder.forget_done()
                self._ticked_s = time.monotonic()
        finally:
            adapter.close()
            self._fail(self._queue.abort(), RequestFailed("the engine loop has ended", "stopped"))

    def _step(self, embedder: Embedder, plan: StepPlan) -> None:
        """Runs `plan`; where it fails, each prompt alone, so that only the guilty request fails."""
        self._ticked_s = started_s = time.monotonic()
        if all(chunk.prompt.request.future.done() for chunk in plan.chunks):
            return
        try:
            vectors = embedder.run(plan)
        except _STEP_ERRORS:
            if len(plan.chunks) > 1:
                for alone in plan.split(1):
                    self._step(embedder, alone)
                return
            _log.exception("a prompt of %d tokens failed", plan.num_tokens)
            self._drop(plan.chunks[0].prompt.request, RequestFailed("the model failed on this input", "step"))
            return
        seconds = time.monotonic() - started_s
        self._slowest_s = max(self._slowest_s, seconds)
        if len(vectors):
            self._deliver(plan, vectors)
        complete = self._queue.finish(plan, seconds)
        for observe in self.observers:
            observe(plan, seconds)
        for request in complete:
            self._complete(request)

    def _deliver(self, plan: StepPlan, vectors: torch.Tensor) -> None:
        """Gives each prompt that `plan` completes its row; a request with a row that is not finite fails."""
        size, data = 4 * vectors.shape[1], to_bytes(vectors)
        finite: list[bool] = vectors.isfinite().all(1).tolist()
        for row, prompt in enumerate(chunk.prompt for chunk in plan.chunks if chunk.is_last):
            if finite[row]:
                prompt.request.outputs[prompt.index] = bytes(data[row * size : (row + 1) * size])
            else:
                _log.error("a prompt of %d tokens gave a vector that is not finite", prompt.num_tokens)
                error = RequestFailed(f"input {prompt.index} gave a vector that is not finite", "non_finite")
                self._drop(prompt.request, error)

    def _complete(self, request: Request) -> None:
        if request.future.set_running_or_notify_cancel():
            request.future.set_result(collect(request, self.spec.hidden_size, normalizes=self._normalizes))

    def _drop(self, request: Request, error: Exception) -> None:
        if self._queue.cancel(request):
            self._fail((request,), error)

    @staticmethod
    def _fail(requests: Sequence[Request], error: Exception) -> None:
        for request in requests:
            if request.future.set_running_or_notify_cancel():
                request.future.set_exception(error)
