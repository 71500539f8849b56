"""Step 3 over the devices of a host: how many ranks share the model, and what the other devices may do."""

from collections.abc import Iterator
from dataclasses import replace

from vllm_probe.core.config import Rejection
from vllm_probe.core.device import Device
from vllm_probe.core.units import format_figure
from vllm_probe.negotiate.case import Case
from vllm_probe.negotiate.laws import by_device, table
from vllm_probe.negotiate.predict import Roofline, link
from vllm_probe.negotiate.request import ranks_of
from vllm_probe.negotiate.select import LEAST_BITS, Selection, choose
from vllm_probe.negotiate.sizing import Sized

_TIE = 1.05  # another rank has to gain more


def spread(case: Case) -> Selection:
    """The choice on the fewest devices of the host that hold the checkpoint, on more where one request is then faster.

    A quantized twin on one device goes before nothing at all, and after the checkpoint as it is on several.

    Raises:
        BadUsage: a pinned format or method that the engine cannot run on this device.
    """
    count, pins = min(case.request.num_devices or 1, case.engine["max_ranks"]), case.request.pins
    is_open = {"tensor_parallel_size", "pipeline_parallel_size"}.isdisjoint(pins)
    case = replace(case, division_rule=_undivided(case, is_open=is_open))
    first = choose(case)
    if count == 1 or not is_open or first.chosen.budget.verdict in ("invalid", "unknown"):
        return first
    if first.own.boots and case.request.objective != "latency":
        rule = f"one of {count} devices holds it: the others serve more requests as replicas than as ranks"
        return choose(replace(case, division_rule=rule))
    splits = []
    for split in _splits(case, count):
        splits.append(choose(split))
        if splits[-1].own.boots and case.request.objective != "latency":
            break
    holding = [found for found in (first, *splits) if found.own.boots]
    if case.request.objective == "latency" and holding and link(case):
        return _fastest(holding, count)
    return _smallest([first, *splits], holding)


def _undivided(case: Case, *, is_open: bool) -> str:
    """Why the model is not divided over more devices than the pins say."""
    count, main = case.request.num_devices, case.request.device_id
    if not is_open:
        return "the other is pinned, and nothing more is divided than was asked for"
    if case.engine["max_ranks"] == 1:
        return f"the {case.request.engine} runtime runs one device in one process"
    if count is None:
        return "one device: no host with such devices is known"
    if count > 1:
        return f"one of {count} devices: dividing the model over more is not known to be better"
    own = next((device for device in case.request.beside if device.id == main), None)
    kind = own and (own.vendor, own.arch, own.name)
    alike = [device for device in case.request.beside if (device.vendor, device.arch, device.name) == kind]
    return "--device names this one alone" if len(alike) > 1 else "the host has one such device"


def _smallest(divisions: list[Selection], holding: list[Selection]) -> Selection:
    """The first division that holds what wins: the checkpoint as it is, a twin that is better anyhow, or any twin."""
    wins = holding[0].chosen.candidate.quantization if holding else None
    booting = [found for found in divisions if found.chosen.boots] or divisions
    return next((found for found in booting if found.chosen.candidate.quantization == wins), booting[0])


def _splits(case: Case, count: int) -> Iterator[Case]:
    """Every division of the model over at most `count` devices: tensor before pipeline parallel, fewest first."""
    shapes = [(ranks, stages) for ranks in ranks_of(case.spec) for stages in range(1, count // ranks + 1)]
    least = case.need.num_parameters * LEAST_BITS / 8
    fitting = ((ranks, stages) for ranks, stages in shapes if ranks * stages > 1 and stages <= case.spec.num_layers)
    for ranks, stages in sorted(fitting, key=lambda shape: (shape[1] > 1, shape[0] * shape[1], shape[1])):
        if least / (ranks * stages) > (case.usable_bytes or 0):
            continue
        parts = f"{ranks} tensor-parallel ranks" if stages == 1 else f"{stages} stages of {ranks} ranks"
        rule = f"the fewest of {count} devices that hold the model: {parts}"
        yield replace(case, division=(ranks, stages), division_rule=rule)


def _fastest(holding: list[Selection], count: int) -> Selection:
    """The fewest ranks whose sums cost less than the reading they save: within 5 % of the fastest request."""
    times = [(_request_s(found.chosen), found) for found in holding if found.chosen.case.stages == 1]
    if not times:
        return holding[0]
    least = min(time for time, _ in times)
    chosen = next(found for time, found in times if time <= _TIE * least)
    shown = ", ".join(f"{format_figure(1000 * time)} ms on {found.chosen.case.ranks}" for time, found in times)
    rule = f"the fewest of {count} devices within 5 % of the fastest request: {shown}"
    return choose(replace(chosen.chosen.case, division_rule=rule))


def _request_s(sized: Sized) -> float:
    """Seconds from a request to its last token."""
    found = Roofline(sized.case, sized.candidate, sized.shape)
    return found.ttft_s() + sized.case.workload.output_len * found.tpot_s()


def roles(case: Case) -> tuple[dict[str, str], tuple[Rejection, ...]]:
    """Role to device id, and for each device of the host what it may not do, with the reason.

    `main` runs the model, `rank_N` shares it, `host` prepares requests and holds what is swapped out, `fallback` takes
    over while main is busy (`--on-busy fallback`).
    """
    main, law = case.request.device_id or case.capability.device.id or case.capability.device_type, table("roles")
    found = {"main": main}
    others = [device for device in case.request.beside if device.id != main]
    usable = [device for device in others if device.usable and device.visible]
    shared = [device for device in usable if _shares(case, device)][: case.ranks * case.stages - 1]
    found |= {f"rank_{number}": device.id for number, device in enumerate(shared, 1)}
    if host := next((device for device in usable if device.kind == law["host"]), None):
        found["host"] = host.id
    order = law["fallback"]
    spare = [device for device in usable if device not in shared and device.kind in order]
    if spare and case.request.engine == "bundled":
        found["fallback"] = min(spare, key=lambda device: (order.index(device.kind), device.id)).id
    apart = (device for device in others if device not in shared)
    return found, tuple(Rejection(value=each.id, because=_why_apart(case, each, found)) for each in apart)


def _shares(case: Case, device: Device) -> bool:
    """Whether a device can hold a rank beside main: of the same kind, so that one build and one library reach both."""
    own = case.capability.device
    names = {own.name, *own.also}
    return (device.vendor, device.arch) == (own.vendor, own.arch) and (device.name is None or device.name in names)


def _why_apart(case: Case, device: Device, found: dict[str, str]) -> str:
    """What keeps a device from sharing the layers, and what it does or may do instead."""
    if not (device.usable and device.visible):
        return f"it does nothing: {device.verdict.reason}"
    law = table("roles")
    does = "; ".join(law["instead"][role] for role, name in found.items() if name == device.id)
    if _shares(case, device):
        return f"no layers: {case.division_rule}{does and f'; {does}'}"
    row = by_device(law["apart"], device.kind)
    return f"no layers: {row['because']}; {does or row['may']}"
