"""Step plan in, one vector per prompt out."""

import logging
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

import torch

from vllm_probe.core.config import RuntimeConfig
from vllm_probe.core.errors import BadUsage, DeviceUnavailable, SchemaViolation
from vllm_probe.core.model import ModelSpec, Pooling
from vllm_probe.core.primitive import Primitive
from vllm_probe.core.progress import Progress
from vllm_probe.core.values import ENGINE_DTYPES
from vllm_probe.runtime.modeling import bert, qwen3
from vllm_probe.runtime.modeling.context import Context
from vllm_probe.runtime.modeling.loading import CausalModel, Loader, Model, Numerics
from vllm_probe.runtime.modeling.pooling import pooled_states
from vllm_probe.runtime.modeling.weights import Checkpoint, DummyWeights
from vllm_probe.runtime.sched.request import Chunk, Prompt, StepPlan
from vllm_probe.vendors.torchbase import TorchAdapter

_log = logging.getLogger(__name__)

LoadFormat: TypeAlias = Literal["auto", "safetensors", "dummy"]

ARCHITECTURES = (*bert.ARCHITECTURES, *qwen3.ARCHITECTURES)
_POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
_PRIMITIVES = (Primitive.LINEAR, Primitive.ATTENTION, Primitive.RMS_NORM, Primitive.ROPE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedder:
    """A model with its pooling, on an open adapter.

    Attributes:
        adapter: the device.
        model: the transformer.
        pooling: how token states become one vector.
        contexts: of the prompts that are computed in part.
    """

    adapter: TorchAdapter
    model: Model
    pooling: Pooling
    contexts: dict[Prompt, Context] = field(default_factory=dict)

    def run(self, plan: StepPlan) -> torch.Tensor:
        """Pooled states of the prompts that `plan` completes, in its order, [prompts, hidden], float32 on the host."""
        with torch.inference_mode():
            token_ids = self.adapter.tensor([*chain.from_iterable(chunk.token_ids for chunk in plan.chunks)])
            if plan.chunks[0].is_whole:
                vectors = pooled_states(self.model, token_ids, plan.lengths, self.pooling)
            else:
                vectors = self._extend(plan.chunks[0], token_ids)
            return vectors.cpu()

    def forget_done(self) -> None:
        """Drops what is held of prompts that nobody waits for any more."""
        for prompt in [prompt for prompt in self.contexts if prompt.request.future.done()]:
            del self.contexts[prompt]

    def _extend(self, chunk: Chunk, token_ids: torch.Tensor) -> torch.Tensor:
        model = cast("CausalModel", self.model)
        if chunk.begin == 0:
            self.contexts[chunk.prompt] = model.context(chunk.prompt.num_tokens)
        state = model.extend(token_ids, self.contexts[chunk.prompt]).float()
        if not chunk.is_last:
            return state[:0]
        del self.contexts[chunk.prompt]
        return state


def chunks_prompts(spec: ModelSpec, pooling: Pooling) -> bool:
    """Whether prompts can be computed in chunks: no token sees a later one, and the last is pooled."""
    return spec.architecture in qwen3.ARCHITECTURES and pooling == "last"


def load_embedder(
    config: RuntimeConfig, spec: ModelSpec, adapter: TorchAdapter, load_format: LoadFormat, progress: Progress
) -> Embedder:
    """The model of `spec` on the open `adapter`, computed as `config` says.

    Raises:
        DeviceUnavailable: the device does not compute in the number format.
        BadUsage: `config` names an implementation that the adapter does not have.
        UnsupportedModel: a variant of the architecture that is not computed here.
        InvalidModel: weights that are damaged or contradict `spec`.
    """
    dtype = {runtime: word for word, runtime in ENGINE_DTYPES.items()}.get(config.dtype, config.dtype)
    chosen = {str(primitive): _implementation(primitive, dtype, config, adapter) for primitive in _PRIMITIVES}
    numerics = Numerics(dtype=dtype, implementations=chosen)
    pooling, _ = pooling_of(config, spec)
    model = _load_model(spec, numerics, adapter, load_format, progress)
    return Embedder(adapter=adapter, model=model, pooling=pooling)


def pooling_of(config: RuntimeConfig, spec: ModelSpec) -> tuple[Pooling, bool]:
    """How token states become one vector, and whether that is scaled: the config's word before the checkpoint's.

    Raises:
        SchemaViolation: the config's word is none of those.
    """
    stated = config.pooling or {}
    method, normalizes = stated.get("type", spec.pooling or "mean"), stated.get("normalize", spec.normalizes)
    if method not in _POOLINGS:
        wanted = ", ".join(map(repr, _POOLINGS))
        raise SchemaViolation(f"must be one of {wanted}, not {method!r:.80}", pointer="/pooling/type")
    if not isinstance(normalizes, bool):
        raise SchemaViolation(f"must be true or false, not {normalizes!r:.80}", pointer="/pooling/normalize")
    return cast("Pooling", method), normalizes


def _load_model(
    spec: ModelSpec, numerics: Numerics, adapter: TorchAdapter, load_format: LoadFormat, progress: Progress
) -> Model:
    decodes = spec.architecture in qwen3.ARCHITECTURES
    load = qwen3.load_decoder if decodes else bert.load_encoder
    if load_format == "dummy":
        return load(Loader(spec, numerics, adapter, DummyWeights(spec)), progress)
    assert spec.weights_path is not None
    checkpoint = Checkpoint(Path(spec.weights_path), qwen3.ANCHOR if decodes else bert.ANCHOR)
    return load(Loader(spec, numerics, adapter, checkpoint), progress)


def _implementation(primitive: Primitive, dtype: str, config: RuntimeConfig, adapter: TorchAdapter) -> str:
    support = adapter.supports(primitive, dtype)
    if not support.ok:
        message = f"{adapter.device.id} has no {primitive} in {dtype}: {support.reason}"
        raise DeviceUnavailable(message, hint="negotiate again on this machine, or give another --dtype")
    known = adapter.implementations(primitive, dtype)
    compiled = config.compile.backend if config.compile.enabled else None
    preferred = compiled if compiled in known else known[0]
    chosen = config.primitives.get(primitive, preferred)
    if chosen not in known and chosen == config.compile.backend:
        _log.warning("%s is not compiled here: it runs as %s", primitive, preferred)
        return preferred
    if chosen not in known:
        message = f"{adapter.device.id} has no implementation {chosen!r} of {primitive} in {dtype}"
        raise BadUsage(message, hint=f"use one of {', '.join(known)}")
    return chosen
