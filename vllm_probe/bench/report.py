"""Measurements to a capability document, in which every value and every gap says where it comes from."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from types import MappingProxyType
from typing import Any

from vllm_probe.bench.facts import known_facts
from vllm_probe.bench.section import Section
from vllm_probe.core import codec
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Capability
from vllm_probe.core.document import Stamp


class Report:
    """Writes the capability document of one device; what is looked up is looked up once."""

    def __init__(
        self,
        adapter: HardwareAdapter[Any],
        stamp: Stamp,
        sections: Sequence[Section],
        unknown: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._vendor = adapter.device.vendor
        self._stamp = stamp
        self._sections = sections
        self._known = known_facts(adapter, unknown)

    def capability(self) -> Capability:
        """The document of what the sections have read so far; the rest is null and skipped."""
        sheet = deepcopy(self._known)
        for section in self._sections:
            section.write(sheet)
        about = {"measurements": codec.to_json(sheet.measurements), "unknown": sheet.unknown}
        header = {"schema_version": "2.0", "device_type": self._vendor, **self._stamp.header()}
        return codec.from_json(Capability, {**header, **sheet.values, **about})

    def restore(self, partial: Capability) -> None:
        """Gives the sections what an interrupted run finished, unless that ran elsewhere or with another torch."""
        here, there = self._known.values["device"], codec.to_json(partial.device)
        if partial.host_fingerprint == self._stamp.host_fingerprint and there == here:
            for section in self._sections:
                section.restore(partial)
