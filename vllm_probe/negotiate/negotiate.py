"""The verb: model, descriptor and request in, runtime config with its record out."""

from collections.abc import Iterator
from dataclasses import replace

from vllm_probe.core.capability import Capability
from vllm_probe.core.codec import join, to_json
from vllm_probe.core.config import Alternative, RuntimeConfig
from vllm_probe.core.document import Stamp
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.values import JsonValue
from vllm_probe.negotiate.alternatives import alternatives
from vllm_probe.negotiate.case import Case, open_case
from vllm_probe.negotiate.chunking import refusal_of_step
from vllm_probe.negotiate.decide import Record
from vllm_probe.negotiate.laws import by_device
from vllm_probe.negotiate.parallel import spread
from vllm_probe.negotiate.predict import predict
from vllm_probe.negotiate.request import Request
from vllm_probe.negotiate.select import Selection
from vllm_probe.negotiate.support import WORDS

_OPEN = ("unknown", "decisions", "checks")


def negotiate(spec: ModelSpec, capability: Capability, request: Request, stamp: Stamp) -> RuntimeConfig:
    """The runtime config of `spec` on the device of `capability`, with the reason of every value.

    What does not fit is not an error here: `budget.verdict` says it and `alternatives` rank what would boot.

    Raises:
        BadUsage: a pin or engine version that means nothing, or that the engine cannot honour on this device.
    """
    case = open_case(spec, capability, request)
    selection = spread(case)
    case = selection.chosen.case
    chosen, record = selection.chosen, Record(selection)
    config = RuntimeConfig(
        schema_version="1.0",
        **stamp.header(),
        engine=request.engine,
        engine_version=case.engine_version if request.engine == "vllm" else stamp.tool_version,
        device=request.device_id or capability.device.id,
        device_type=capability.device_type,
        capability=_name(request, capability),
        model=_place(spec),
        task=spec.task,
        **record.values,
        requires=chosen.candidate.requires or ((spec.needs,) if spec.needs else ()),
        budget=chosen.budget,
        predicted=predict(case, chosen.candidate, chosen.shape, chosen.budget.verdict),
        decisions=tuple(record.decisions),
        alternatives=tuple(_alternatives(selection, record)),
        warnings=_warnings(case, selection),
    )
    return _explained(config)


def _place(spec: ModelSpec) -> str:
    """The model as an engine finds it; a folder without weights is where they have to come, its name is nobody's."""
    return spec.weights_path or spec.repository or (None if spec.needs else spec.folder) or spec.name


def _name(request: Request, capability: Capability) -> str:
    if capability.host_fingerprint is None:
        return request.capability_name
    return f"{request.capability_name} ({capability.host_fingerprint})"


def _alternatives(selection: Selection, record: Record) -> Iterator[Alternative]:
    """What else would do; the checkpoint's own format, where it boots, with what it changes."""
    own = selection.own
    for rank, found in enumerate(alternatives(selection)):
        if rank or selection.chosen is own or not own.boots:
            yield found
            continue
        decided = {each.key: each for each in record.decisions}
        others = Record(replace(selection, chosen=own)).decisions
        values = {each.key: each.value for each in others if each.value != decided[each.key].value}
        rules = {each.key: each.rule for each in others if each.key in values or each.rule != decided[each.key].rule}
        rules.pop("quantization", None)  # it says why another won
        yield replace(found, values=values, rules=rules)


def _warnings(case: Case, selection: Selection) -> tuple[str, ...]:
    reason = selection.chosen.candidate.unsupported or case.workload.reason or refusal_of_step(case)
    found = [*([reason] if reason else []), *case.warnings]
    found += [*([case.spec.understood] if case.spec.understood else []), *case.request.notes]
    compared = _compared(selection)
    doubts = case.rates.bursts(compared), case.rates.doubts(compared)
    found += [*selection.chosen.candidate.doubts, *(doubt for doubt in doubts if doubt)]
    found += [f"{name} of {case.spec.name}: {reason}" for name, reason in case.spec.unknown.items()]
    residual = case.request.residual
    found += [residual.sentence] if residual and residual.ranks == selection.chosen.case.ranks else []
    if case.spec.weight_bytes is None and case.spec.num_parameters is None:
        found.append(f"weight bytes are computed from the shape of {case.spec.name}, no file header was read")
    if case.request.engine == "vllm" and (place := _place(case.spec)) == case.spec.folder != case.spec.weights_path:
        found.append(f"{place} has no weights: vLLM starts once they are there")
    elif case.request.engine == "vllm" and place == case.spec.name and not case.spec.needs:
        found.append(f"{case.spec.name} is assumed to exist: give its repository (organisation/name) or folder to vLLM")
    if processes := by_device(case.engine["non_torch_by_device"], case.device_type):
        found.append(f"memory of the engine's processes: {processes['source']}")
    return tuple(dict.fromkeys(found))


def _compared(selection: Selection) -> tuple[str, ...]:
    """Capability words whose rates decided: of the chosen formats, and of those that were measured against them."""
    chosen = selection.chosen.candidate
    others = (WORDS[str(rejection.value)] for rejection in selection.dtypes)
    return tuple(dict.fromkeys([chosen.compute, WORDS[chosen.dtype], *others]))


def _explained(config: RuntimeConfig) -> RuntimeConfig:
    """`config` with the reason of every null in it."""
    rules = {f"/{decision.key}": decision.rule for decision in config.decisions}
    unknown = {}
    for pointer in _nulls({key: value for key, value in to_json(config).items() if key not in _OPEN}, ""):
        top = f"/{pointer.split('/')[1]}"
        unknown[pointer] = {
            "/device": "neither the request nor the descriptor names a device",
            "/compile": config.compile.reason,
            "/predicted": config.predicted.method if config.predicted.ttft_s.value is None else "nothing is generated",
            "/budget": "the capacity is unknown: give --device-memory",
            "/alternatives": "the capacity is unknown: give --device-memory",
        }.get(top) or rules[top]
    return replace(config, unknown=unknown)


def _nulls(value: JsonValue, pointer: str) -> Iterator[str]:
    if value is None:
        yield pointer
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _nulls(item, join(pointer, key))
