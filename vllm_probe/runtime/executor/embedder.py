"""Step plan in, one vector per prompt out."""

from dataclasses import dataclass
from itertools import chain

import torch

from vllm_probe.core.adapter import Primitive
from vllm_probe.core.config import RuntimeConfig
from vllm_probe.core.errors import BadUsage, DeviceUnavailable
from vllm_probe.core.model import ModelSpec, Pooling
from vllm_probe.core.progress import Progress
from vllm_probe.core.values import ENGINE_DTYPES
from vllm_probe.runtime.modeling.bert import Encoder, Numerics, load_encoder
from vllm_probe.runtime.modeling.pooling import normalize, pool
from vllm_probe.runtime.sched.request import StepPlan
from vllm_probe.vendors.torchbase import TorchAdapter


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedder:
    """An encoder with its pooling, on an open adapter.

    Attributes:
        adapter: the device.
        encoder: the model.
        pooling: how token states become one vector.
        normalizes: whether vectors are scaled to unit length.
    """

    adapter: TorchAdapter
    encoder: Encoder
    pooling: Pooling
    normalizes: bool

    def run(self, plan: StepPlan) -> torch.Tensor:
        """Vectors of the plan's prompts in its order, [prompts, hidden], float32 on the host."""
        lengths = plan.lengths
        with torch.inference_mode():
            token_ids = self.adapter.tensor([*chain.from_iterable(prompt.token_ids for prompt in plan.prompts)])
            vectors = pool(self.encoder.forward(token_ids, lengths), lengths, self.pooling)
            return (normalize(vectors) if self.normalizes else vectors).cpu()


def load_embedder(config: RuntimeConfig, spec: ModelSpec, adapter: TorchAdapter, progress: Progress) -> Embedder:
    """The model of `spec` on the open `adapter`, computed as `config` says.

    Raises:
        DeviceUnavailable: the device does not compute in the number format.
        BadUsage: `config` names an implementation that the adapter does not have.
    """
    dtype = {runtime: word for word, runtime in ENGINE_DTYPES.items()}.get(config.dtype, config.dtype)
    numerics = Numerics(
        dtype=dtype,
        linear=_implementation(Primitive.LINEAR, dtype, config, adapter),
        attention=_implementation(Primitive.ATTENTION, dtype, config, adapter),
    )
    pooling = config.pooling or {}
    return Embedder(
        adapter=adapter,
        encoder=load_encoder(spec, numerics, adapter, progress),
        pooling=pooling.get("type", spec.pooling or "mean"),
        normalizes=pooling.get("normalize", spec.normalizes),
    )


def _implementation(primitive: Primitive, dtype: str, config: RuntimeConfig, adapter: TorchAdapter) -> str:
    support = adapter.supports(primitive, dtype)
    if not support.ok:
        message = f"{adapter.device.id} has no {primitive} in {dtype}: {support.reason}"
        raise DeviceUnavailable(message, hint="negotiate again on this machine, or give another --dtype")
    known = adapter.implementations(primitive, dtype)
    chosen = config.primitives.get(primitive, known[0])
    if chosen not in known:
        message = f"{adapter.device.id} has no implementation {chosen!r} of {primitive} in {dtype}"
        raise BadUsage(message, hint=f"use one of {', '.join(known)}")
    return chosen
