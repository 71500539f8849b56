"""Prometheus metrics under vLLM's names, so that its dashboards work, and `probe:` ones for the rest."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.executor.result import Embeddings
from vllm_probe.runtime.sched.request import StepPlan
from vllm_probe.runtime.server.front import Front

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_TOKENS = tuple(1 << power for power in range(18))
_LABELS = ("model_name", "engine")


class Metrics:
    """The metrics of one engine and what is in front of it, in a registry of their own."""

    def __init__(self, engine: Engine, front: Front, model: str) -> None:
        """Subscribes to the engine's steps."""
        self._registry = CollectorRegistry()
        self._labels = (model, "0")
        self._registry.register(_Gauges(engine, front, self._labels))
        self._prompt_tokens = self._counter("vllm:prompt_tokens", "Prompt tokens computed.")
        self._success = self._counter("vllm:request_success", "Requests answered.", "finished_reason")
        self._rejected = self._counter("vllm:admission_rejections", "Requests not admitted.", "reason")
        self._failed = self._counter("probe:request_failures", "Requests that got an error or went away.", "reason")
        self._truncated = self._counter("probe:truncated_inputs", "Inputs that were cut.")
        self._request_tokens = self._histogram("vllm:request_prompt_tokens", "Tokens per request.", _TOKENS)
        self._step_tokens = self._histogram("vllm:iteration_tokens_total", "Tokens per step.", _TOKENS)
        self._step_s = self._histogram("probe:step_seconds", "Time per step.", _SECONDS)
        self._tokenize_s = self._histogram("probe:tokenize_seconds", "Time to tokenize a request.", _SECONDS)
        self._queue_s = self._histogram("vllm:request_queue_time_seconds", "Time before the first step.", _SECONDS)
        self._compute_s = self._histogram("vllm:request_inference_time_seconds", "Time in steps.", _SECONDS)
        self._total_s = self._histogram("vllm:e2e_request_latency_seconds", "Time in the server.", _SECONDS)
        engine.observers.append(self._step)

    def text(self) -> bytes:
        """The metrics in the text format."""
        return generate_latest(self._registry)

    def answered(self, result: Embeddings, tokenize_s: float, total_s: float) -> None:
        """Counts a request that got its vectors."""
        self._success.labels(*self._labels, "stop").inc()
        self._truncated.labels(*self._labels).inc(result.num_truncated)
        self._request_tokens.labels(*self._labels).observe(result.prompt_tokens)
        self._tokenize_s.labels(*self._labels).observe(tokenize_s)
        self._queue_s.labels(*self._labels).observe(result.queue_s)
        self._compute_s.labels(*self._labels).observe(result.compute_s)
        self._total_s.labels(*self._labels).observe(total_s)

    def rejected(self, reason: str) -> None:
        """Counts a request that was not admitted."""
        self._rejected.labels(*self._labels, reason).inc()

    def failed(self, reason: str) -> None:
        """Counts a request that got an error or whose client went away."""
        self._failed.labels(*self._labels, reason).inc()

    def _step(self, plan: StepPlan, seconds: float) -> None:
        self._prompt_tokens.labels(*self._labels).inc(plan.num_tokens)
        self._step_tokens.labels(*self._labels).observe(plan.num_tokens)
        self._step_s.labels(*self._labels).observe(seconds)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, (*_LABELS, *labels), registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, text, _LABELS, buckets=buckets, registry=self._registry)


class _Gauges(Collector):
    def __init__(self, engine: Engine, front: Front, labels: tuple[str, str]) -> None:
        self._engine = engine
        self._front = front
        self._labels = labels

    def collect(self) -> Iterator[GaugeMetricFamily]:
        state = self._engine.queue_state()
        for name, text, value in (
            ("vllm:num_requests_running", "Requests of which a prompt runs or has run.", state.running),
            ("vllm:num_requests_waiting", "Requests of which no prompt has run.", state.waiting),
            ("probe:waiting_tokens", "Tokens in the queue.", state.waiting_tokens),
            ("probe:reading_requests", "Requests that are received or read.", self._front.num_requests),
            ("probe:reading_bytes", "Bytes of their bodies.", self._front.num_bytes),
        ):
            family = GaugeMetricFamily(name, text, labels=_LABELS)
            family.add_metric(self._labels, value)
            yield family
