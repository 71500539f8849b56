"""One question in full: model, device, engine and workload, with the rules that apply."""

from dataclasses import dataclass, replace

from vllm_probe.core.capability import Capability
from vllm_probe.core.errors import BadUsage
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.releases import is_before
from vllm_probe.core.units import GIB
from vllm_probe.core.values import Engine
from vllm_probe.negotiate.blocks import BlockRule, block_rule, check_block_size, doubt_of_blocks
from vllm_probe.negotiate.cacheformat import CacheFormat, cache_format, check_cache_format
from vllm_probe.negotiate.laws import Row, band, by_device, card_of, device_row, table
from vllm_probe.negotiate.rates import Rates
from vllm_probe.negotiate.request import Request, Workload, check_pins, workload_of
from vllm_probe.negotiate.requirements import Requirements, analyse


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What every step looks at.

    Attributes:
        request: the question, its pins checked.
        workload: requests to serve.
        need: what the model asks for.
        capability: the descriptor.
        rates: its speeds.
        device_type: first name of its device type.
        device: rules of that device type.
        engine: facts of the engine.
        engine_version: version that counts.
        law: memory law of that version.
        blocks: KV blocks that it takes for this model there.
        cache: format in which it keeps keys and values by itself.
        total_bytes: memory that the engine sees, null when unknown.
        usable_bytes: what one process may allocate of it, null when unknown.
        warnings: doubts that arose so far.
        division: tensor-parallel ranks and pipeline stages where none are pinned.
        division_rule: why so many.
    """

    request: Request
    workload: Workload
    need: Requirements
    capability: Capability
    rates: Rates
    device_type: str
    device: Row
    engine: Row
    engine_version: str
    law: Row
    blocks: BlockRule
    cache: CacheFormat
    total_bytes: int | None
    usable_bytes: int | None
    warnings: tuple[str, ...]
    division: tuple[int, int] = (1, 1)
    division_rule: str = "one device"

    @property
    def spec(self) -> ModelSpec:
        """The model."""
        return self.need.spec

    @property
    def computes_whole_prompts(self) -> bool:
        """Whether a step must hold the longest prompt: attention, pooling or an engine that takes all of it."""
        return self.spec.is_encoder or self.spec.pooling not in (None, "last") or not self.keeps_kv

    @property
    def keeps_kv(self) -> bool:
        """Whether there is a KV cache: not for an encoder, nor where an engine embeds each prompt in one step."""
        return not self.spec.is_encoder and (self.spec.task == "generate" or self.engine["chunks_prompts"])

    @property
    def ranks(self) -> int:
        """Tensor-parallel ranks."""
        return int(self.request.pins.get("tensor_parallel_size", self.division[0]))

    @property
    def stages(self) -> int:
        """Pipeline stages."""
        return int(self.request.pins.get("pipeline_parallel_size", self.division[1]))

    def pinned(self, **pins: object) -> "Case":
        """The same case with more parameters pinned."""
        return replace(self, request=replace(self.request, pins={**self.request.pins, **pins}))


def open_case(spec: ModelSpec, capability: Capability, request: Request) -> Case:
    """The case of `spec` on the device of `capability`.

    Raises:
        BadUsage: a pin or engine version that means nothing, or a release that lacks the architecture.
    """
    spec = _asked_length(spec, request)
    engine, memory = table(request.engine), capability.memory
    version, law, outside = band(request.engine, request.engine_version)
    name, device = device_row(capability.device_type)
    rates = Rates(capability, device)
    request = check_pins(request, spec, engine["max_ranks"])
    check_cache_format(request, spec, capability.device_type, version)
    blocks, cache = block_rule(spec, capability, request, version), cache_format(spec, capability, request, version)
    if request.engine == "vllm":
        check_block_size(request, spec, name, blocks)
    warnings = [outside, _release_doubt(engine, spec, version), *rates.suspects(), refusal_of(request.engine, spec)]
    warnings += [] if "kv_cache_dtype" in request.pins else [cache.warning]
    warnings += [doubt_of_blocks(request, spec, blocks)]
    total = request.device_memory_bytes or _seen_bytes(capability) or memory.total_bytes or memory.usable_bytes
    usable = request.device_memory_bytes or memory.usable_bytes or total
    return Case(
        request=request,
        workload=workload_of(request, spec),
        need=analyse(spec),
        capability=capability,
        rates=rates,
        device_type=name,
        device=device,
        engine=engine,
        engine_version=version,
        law=law,
        blocks=blocks,
        cache=cache,
        total_bytes=total,
        usable_bytes=min(usable, total) if usable and total else None,
        warnings=tuple(warning for warning in warnings if warning),
    )


def _asked_length(spec: ModelSpec, request: Request) -> ModelSpec:
    """`spec` with the limit that the request implies, where no file states one."""
    if "max_model_len" not in spec.unknown:
        return spec
    asked = (request.input_len or 0) + (request.output_len or 0)
    pinned = request.pins.get("max_model_len")
    return replace(spec, max_model_len=max(pinned if type(pinned) is int else 1, asked, spec.max_model_len))


def _release_doubt(engine: Row, spec: ModelSpec, version: str) -> str | None:
    """That it is not known whether a release has the architecture; null when it has, or when nothing is known of it.

    Raises:
        BadUsage: the release is known to lack it.
    """
    if lacking := architecture_reason(engine, spec, version):
        raise BadUsage(lacking[0], hint=lacking[1])
    first, _ = engine.get("first_releases", {}).get(spec.architecture, (None, None))
    if first is None or not is_before(version, first):
        return None
    return f"it is not known whether vLLM {version} has {spec.architecture}: {first} is the first release seen with it"


def architecture_reason(engine: Row, spec: ModelSpec, version: str) -> tuple[str, str] | None:
    """That a release is known to lack the architecture, and which release to take; null otherwise."""
    message = f"vLLM {version} has no {spec.architecture}, the architecture of {spec.name}"
    last = engine.get("last_releases", {}).get(spec.architecture)
    if last and is_before(last, version):
        return f"{message}, any more", f"give --engine-version {last}, the last release that has it"
    first, without = engine.get("first_releases", {}).get(spec.architecture, (None, None))
    if without and is_before(version, first) and not is_before(without, version):
        return message, f"give --engine-version {first} or newer, or none for the newest known"
    return None


def _seen_bytes(capability: Capability) -> int | None:
    """What an engine sees of a card of which only the data sheet's memory is known; null for other cards."""
    card = card_of(capability.device.name or "") if capability.memory.usable_bytes is None else None
    return round(card["gib"] * GIB) if card and card["gib"] and card["type"] == capability.device_type else None


def refusal_of(engine: Engine, spec: ModelSpec) -> str | None:
    """Why `engine` cannot run the format or the architecture of `spec`, and what can; null when it can."""
    if spec.needs:
        return f"no engine here runs ONNX graphs: what is said of {spec.name} is for {spec.needs}"
    if no := by_device(table("support")[engine]["methods"], "*").get(spec.quantization, {}).get("refused"):
        return str(no)
    known = table(engine)["architectures"]
    if known is None or spec.architecture in known[spec.task]:
        return None
    shown = f"embeds with {', '.join(known[spec.task])}" if known[spec.task] else "does not generate"
    return f"the bundled runtime of this release {shown}: {spec.architecture} needs --engine vllm"
