"""A scripted device that passes every check, and how a check of it ends where some of its hooks are replaced."""

from functools import cache
from typing import Any

from vllm_probe.core.primitive import Linear, Primitive
from vllm_probe.core.scene import Facts, Scene
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.conformance import Result, reference, run_suite
from vllm_probe.vendors.conformance.outcome import Outcome, Subject, attempt
from vllm_probe.vendors.conformance.suite import all_checks
from vllm_probe.vendors.null.adapter import NullAdapter, NullTensor
from vllm_probe.vendors.null.probe import probe

HOST = ReplayHost(Scene(facts=Facts()))
DEVICE = probe(HOST).devices[0]


class Complete(NullAdapter):
    """The scripted device with the primitives that it lacks, worked out in plain Python, RMS norm in bf16 as well."""

    def implementations(self, primitive: Primitive, dtype: str) -> tuple[str, ...]:
        computed = {Primitive.LINEAR, Primitive.RMS_NORM, Primitive.ROPE, Primitive.ATTENTION, Primitive.QUANTIZE}
        formats = {"fp32" if primitive in computed else "int8", "bf16" if primitive is Primitive.RMS_NORM else ""}
        return ("scripted",) if dtype in formats else ()

    def _weight_only_formats(self) -> tuple[str, ...]:
        return ("int8",)

    def _prepare_weight_only(self, weight: Any, dtype: str) -> Linear[NullTensor]:
        return self._prepare_linear(weight, None, "fp32", "scripted")

    def _rms_norm(self, rows: Any, weight: Any, epsilon: float, implementation: str | None) -> NullTensor:
        n = rows.shape[-1]
        lines = [rows.elements[i : i + n] for i in range(0, len(rows.elements), n)]
        weights = [weight.elements[i : i + n] for i in range(0, len(weight.elements), n)]
        return NullTensor(rows.shape, rows.dtype, reference.rms_norm(lines, weights, epsilon))

    def _rope(self, heads: Any, cosines: Any, sines: Any, implementation: str | None) -> NullTensor:
        values = reference.rope(*map(self.to_host, (heads, cosines, sines)))
        return NullTensor(heads.shape, heads.dtype, values)

    def _attention(
        self, query: Any, key: Any, value: Any, lengths: Any, causal: bool, implementation: str | None
    ) -> NullTensor:
        q, k, v = map(self.to_host, (query, key, value))
        values = reference.attention(q, k, v, lengths, range(len(q)), causal=causal)
        return NullTensor(query.shape, query.dtype, values)

    def _quantize(self, rows: Any, implementation: str | None) -> tuple[NullTensor, NullTensor]:
        lines = self.to_host(rows)
        scales = reference.scales(lines)
        values = [float(round(x / scale)) for line, scale in zip(lines, scales, strict=True) for x in line]
        return NullTensor(rows.shape, "int8", values), NullTensor((len(lines),), "fp32", scales)

    def _swap(
        self, pool: Any, blocks: Any, host: Any, block_bytes: int, to_device: bool, implementation: str | None
    ) -> None:
        inside, outside = pool.elements, host.elements
        for i, block in enumerate(blocks):
            there = slice(block * block_bytes, (block + 1) * block_bytes)
            here = slice(i * block_bytes, (i + 1) * block_bytes)
            if to_device:
                inside[there] = outside[here]
            else:
                outside[here] = inside[there]
        pool.value, host.value = inside, outside


def broken(**hooks: Any) -> type[Complete]:
    return type("Broken", (Complete,), hooks)


def outcome(adapter_class: type[Complete], check: str) -> Outcome:
    """How the check whose name contains `check` ends."""
    adapter = adapter_class(HOST)
    adapter.set_device(DEVICE)
    adapter.open()
    (found,) = [each for each in all_checks(adapter) if check in each.name]
    return attempt(found, Subject(lambda: adapter_class(HOST), DEVICE, adapter, 200))


@cache
def results_of(adapter_class: type[Complete]) -> tuple[Result, ...]:
    return run_suite(lambda: adapter_class(HOST), DEVICE, samples=20)
