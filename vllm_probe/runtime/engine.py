"""The engine: one thread that owns the device, fed with prompts by any other."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass

import torch

from vllm_probe.core.config import RuntimeConfig
from vllm_probe.core.errors import BadUsage, UnsupportedModel, WeightsUnavailable
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.progress import Progress, silent
from vllm_probe.runtime.executor.embedder import Embedder, load_embedder
from vllm_probe.runtime.modeling.bert import ARCHITECTURES
from vllm_probe.runtime.modeling.tokenizing import Input, PromptReader, Prompts
from vllm_probe.runtime.sched.queue import Limits, QueueState, RequestQueue
from vllm_probe.runtime.sched.request import QueueClosed, Request, RequestError, RequestFailed, StepPlan
from vllm_probe.vendors.torchbase import TorchAdapter

StepObserver = Callable[[StepPlan, float], None]

_TICK_S = 1.0
_WAITING_STEPS = 32
_STEP_ERRORS = (RuntimeError, ValueError, LookupError, ArithmeticError, MemoryError)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Embeddings:
    """Vectors of one request.

    Attributes:
        data: float32 in the byte order of this machine, `dimensions` values per input, in the order of the inputs.
        dimensions: width of a vector.
        prompt_tokens: tokens that were computed.
        num_truncated: inputs that were cut.
        queue_s: time waited before the first prompt ran.
        compute_s: time from then until all were done.
    """

    data: bytearray
    dimensions: int
    prompt_tokens: int
    num_truncated: int
    queue_s: float
    compute_s: float

    @property
    def vectors(self) -> torch.Tensor:
        """The vectors, [inputs, dimensions], float32, sharing memory with `data`."""
        return torch.frombuffer(self.data, dtype=torch.float32).view(-1, self.dimensions)


class Engine:
    """A model on a device; made by `load`, safe to use from any thread.

    Attributes:
        stall_s: silence of the loop after which the engine is not healthy, at least four times its slowest step.
        observers: called in the loop thread with every step and its seconds.
    """

    stall_s = 10.0

    def __init__(
        self, config: RuntimeConfig, spec: ModelSpec, adapter: TorchAdapter, progress: Progress, max_waiting_tokens: int
    ) -> None:
        """Starts the loop thread, which opens the adapter and loads the model."""
        self.config = config
        self.spec = spec
        self.observers: list[StepObserver] = []
        self._reader = PromptReader(spec, config.max_model_len)
        self._queue = RequestQueue(
            Limits(
                max_num_seqs=config.max_num_seqs,
                max_num_batched_tokens=config.max_num_batched_tokens,
                max_waiting_tokens=max_waiting_tokens,
            )
        )
        self._ticked_s = time.monotonic()
        self._slowest_s = 0.0
        self._loaded: Future[None] = Future()
        self._thread = threading.Thread(target=self._own, args=(adapter, progress), name="engine-loop", daemon=True)
        self._thread.start()

    @classmethod
    def load(
        cls,
        config: RuntimeConfig,
        spec: ModelSpec,
        adapter: TorchAdapter,
        progress: Progress = silent,
        *,
        max_waiting_tokens: int | None = None,
    ) -> "Engine":
        """Opens `adapter`, loads the weights, warms up; the engine is ready when it returns.

        Args:
            config: what to run and how.
            spec: the model, with its folder of weights.
            adapter: the device, set and not open; closed again by `close`.
            progress: told about each layer, from the engine's thread.
            max_waiting_tokens: size of the queue, default 32 full steps.

        Raises:
            UnsupportedModel: an architecture or quantization that only another engine runs.
            WeightsUnavailable: the model is only a shape.
            DeviceUnavailable: the device does not compute in the number format.
            BadUsage: limits that contradict each other or the model, an implementation that does not exist.
            InvalidModel: damaged weights or tokenizer.
        """
        _check(config, spec)
        waiting = max_waiting_tokens or _WAITING_STEPS * config.max_num_batched_tokens
        engine = cls(config, spec, adapter, lambda step, done, total: progress(step, done, total + 1), waiting)
        engine._loaded.result()
        with ExitStack() as undo:
            undo.callback(engine.close)
            progress("warming up", spec.num_layers + 1, spec.num_layers + 2)
            engine.warm_up()
            undo.pop_all()
        progress("ready", spec.num_layers + 2, spec.num_layers + 2)
        return engine

    def warm_up(self) -> None:
        """Runs the shortest prompt, the longest and a full step, so that no user pays for first calls."""
        full = self.config.max_num_batched_tokens
        length = min(128, self.config.max_model_len)
        count = max(1, min(self.config.max_num_seqs, full // length))
        for prompts in ([[0]], [[0] * self.config.max_model_len], [[0] * length] * count):
            self.submit(Prompts(tuple(prompts), 0)).result()

    def embed(
        self,
        inputs: str | Sequence[Input],
        *,
        truncate_prompt_tokens: int | None = None,
        dimensions: int | None = None,
    ) -> Embeddings:
        """Vectors of texts or token ids.

        Args:
            inputs: texts, or token ids with their special tokens.
            truncate_prompt_tokens: cut longer inputs to so many tokens; -1 is the model's limit.
            dimensions: width of the vectors.

        Raises:
            RequestError: an input that the model cannot take.
            QueueFull: too much waits.
            QueueClosed: the engine is closed.
            RequestFailed: the computation failed.
        """
        listed = [inputs] if isinstance(inputs, str) else inputs
        prompts = self.prepare(listed, truncate_prompt_tokens=truncate_prompt_tokens, dimensions=dimensions)
        return self.submit(prompts).result()

    def prepare(
        self, inputs: Sequence[Input], *, truncate_prompt_tokens: int | None = None, dimensions: int | None = None
    ) -> Prompts:
        """The tokenized `inputs`, checked; arguments and errors as for `embed`."""
        width = self.spec.hidden_size
        if dimensions not in (None, width):
            message = f"{self.spec.name} has {width} dimensions and was not trained to be cut to {dimensions}"
            raise RequestError(message, "dimensions")
        return self._reader.read(inputs, truncate_prompt_tokens)

    def submit(self, prompts: Prompts) -> Future[Embeddings]:
        """Queues `prompts`; cancelling the future drops what has not run.

        Raises:
            QueueFull: too much waits.
            QueueClosed: the engine is closed or drains.
        """
        request = Request(prompts=prompts.token_ids, num_truncated=prompts.num_truncated)
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

    def _own(self, adapter: TorchAdapter, progress: Progress) -> None:
        """All that touches the device, in one thread from open to close.

        A second thread that computes, if only to load, has OpenMP threads of its own; with more of them than
        processors libgomp stops spinning, and each operator pays about 40 us to wake its helpers.
        """
        try:
            adapter.open()
            if self.config.threads:
                torch.set_num_threads(self.config.threads)
            embedder = load_embedder(self.config, self.spec, adapter, progress)
        except Exception as error:  # noqa: BLE001 - raised again where `load` waits
            adapter.close()
            self._loaded.set_exception(error)
            return
        self._loaded.set_result(None)
        try:
            while (plan := self._queue.next_step(_TICK_S)) is not None:
                for part in plan.split(self.config.prefill_chunk_size):
                    self._step(embedder, part)
                self._ticked_s = time.monotonic()
        finally:
            adapter.close()
            self._fail(self._queue.abort(), RequestFailed("the engine loop has ended", "stopped"))

    def _step(self, embedder: Embedder, plan: StepPlan) -> None:
        """Runs `plan`; where it fails, each prompt alone, so that only the guilty request fails."""
        self._ticked_s = started_s = time.monotonic()
        if all(prompt.request.future.done() for prompt in plan.prompts):
            return
        try:
            vectors = embedder.run(plan)
        except _STEP_ERRORS:
            if len(plan.prompts) > 1:
                for alone in plan.split(1):
                    self._step(embedder, alone)
                return
            _log.exception("a prompt of %d tokens failed", plan.num_tokens)
            self._drop(plan.prompts[0].request, RequestFailed("the model failed on this input", "step"))
            return
        seconds = time.monotonic() - started_s
        self._slowest_s = max(self._slowest_s, seconds)
        self._deliver(plan, vectors)
        for request in self._queue.finish(plan, seconds):
            self._complete(request)
        for observe in self.observers:
            observe(plan, seconds)

    def _deliver(self, plan: StepPlan, vectors: torch.Tensor) -> None:
        """Gives each prompt its row; a request with a row that is not finite fails."""
        size = 4 * vectors.shape[1]
        data = bytearray(size * len(vectors))
        torch.frombuffer(data, dtype=torch.float32).copy_(vectors.flatten())
        finite: list[bool] = vectors.isfinite().all(1).tolist()
        for row, prompt in enumerate(plan.prompts):
            if finite[row]:
                prompt.request.outputs[prompt.index] = bytes(data[row * size : (row + 1) * size])
            else:
                _log.error("a prompt of %d tokens gave a vector that is not finite", prompt.num_tokens)
                error = RequestFailed(f"input {prompt.index} gave a vector that is not finite", "non_finite")
                self._drop(prompt.request, error)

    def _complete(self, request: Request) -> None:
        assert request.started_s is not None
        result = Embeddings(
            data=bytearray().join(request.outputs[index] for index in range(len(request.prompts))),
            dimensions=self.spec.hidden_size,
            prompt_tokens=request.num_tokens,
            num_truncated=request.num_truncated,
            queue_s=request.started_s - request.submitted_s,
            compute_s=time.monotonic() - request.started_s,
        )
        if request.future.set_running_or_notify_cancel():
            request.future.set_result(result)

    def _drop(self, request: Request, error: Exception) -> None:
        if self._queue.cancel(request):
            self._fail((request,), error)

    @staticmethod
    def _fail(requests: Sequence[Request], error: Exception) -> None:
        for request in requests:
            if request.future.set_running_or_notify_cancel():
                request.future.set_exception(error)


def _check(config: RuntimeConfig, spec: ModelSpec) -> None:
    """Refuses what this engine does not run, before anything is loaded."""
    parts = config.tensor_parallel_size * config.pipeline_parallel_size
    refused = {
        f"architecture {spec.architecture}": spec.architecture not in ARCHITECTURES,
        f"quantization {config.quantization}": config.quantization != "none",
        f"a checkpoint quantized with {spec.quantization}": spec.quantization != "none",
        f"{parts} devices": parts > 1,
    }
    if reasons := [reason for reason, holds in refused.items() if holds]:
        raise UnsupportedModel(
            f"the bundled engine cannot run {spec.name}: {', '.join(reasons)}",
            hint="use --engine vllm, or an encoder such as all-MiniLM-L6-v2",
        )
    if spec.weights_path is None:
        raise WeightsUnavailable(f"{spec.name} has no weights here", hint="give the folder of a checkpoint")
    longest = min(spec.max_model_len, spec.num_positions - spec.position_offset)
    if config.max_model_len > longest:
        message = f"max_model_len {config.max_model_len} is more than the {longest} positions of {spec.name}"
        raise BadUsage(message, hint=f"use at most {longest}")
    if config.max_num_batched_tokens < config.max_model_len:
        raise BadUsage(
            f"max_num_batched_tokens {config.max_num_batched_tokens} is less than max_model_len {config.max_model_len}",
            hint="an encoder computes a prompt in one step: raise the first or lower the second",
        )
