"""Which capability descriptors there are, and what each of them says in a line."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vllm_probe.core.capability import Capability
from vllm_probe.core.errors import ProbeError
from vllm_probe.vendors.descriptors import Place, SearchResult, descriptor_files, descriptor_name, load_capability
from vllm_probe.vendors.headline import headline


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """One file on the search path; what it does not say is null.

    Attributes:
        name: what `--capability` takes.
        path: the file.
        place: the step of the search.
        serves: ids of the devices of this machine that are described by it and by none before it.
        device_type: vendor's device type, null when the file cannot be read.
        device: marketing name.
        arch: architecture.
        memory_bytes: capacity.
        bandwidth_gb_s: headline memory bandwidth.
        gflops: rate by number format, sustained, or burst where no sustained one can be believed.
        error: why the file cannot be read.
    """

    name: str
    path: str
    place: str
    serves: tuple[str, ...] = ()
    device_type: str | None = None
    device: str | None = None
    arch: str | None = None
    memory_bytes: int | None = None
    bandwidth_gb_s: float | None = None
    gflops: dict[str, float] = field(default_factory=dict)
    error: str | None = None


def list_descriptors(places: Iterable[Place], found: Mapping[str, tuple[SearchResult, ...]]) -> tuple[Descriptor, ...]:
    """The descriptors at `places` in order; `found` holds what a search for each device led to, by device id."""
    listed = []
    for place in places:
        for file in descriptor_files(place):
            serves = tuple(id_ for id_, results in found.items() if any(r.used and r.path == file for r in results))
            listed.append(_describe(place, file, serves))
    return tuple(listed)


def _describe(place: Place, file: Path, serves: tuple[str, ...]) -> Descriptor:
    try:
        capability = load_capability(file)
    except ProbeError as error:
        return Descriptor(name=descriptor_name(file), path=str(file), place=place.name, error=str(error))
    return Descriptor(
        name=descriptor_name(file),
        path=str(file),
        place=place.name,
        serves=serves,
        device_type=capability.device_type,
        device=capability.device.name,
        arch=capability.device.arch,
        memory_bytes=capability.memory.total_bytes,
        bandwidth_gb_s=capability.memory.bandwidth_gb_s,
        gflops=_rates(capability),
    )


def _rates(capability: Capability) -> dict[str, float]:
    rates = {word: headline(capability, word) for word in capability.compute_units}
    return {word: rate.gflops for word, rate in rates.items() if rate}
