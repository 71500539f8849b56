"""Measurements to a capability document, in which every value and every gap says where it comes from."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from vllm_probe.bench.facts import known_facts
from vllm_probe.bench.section import Section
from vllm_probe.bench.timing import STATUSES
from vllm_probe.core import codec
from vllm_probe.core.adapter import HardwareAdapter
from vllm_probe.core.capability import Capability
from vllm_probe.core.document import Stamp

_FRESH_S = 3600.0
"""Age up to which the device is taken to be as it was."""


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

    def restore(self, partial: Capability) -> bool:
        """Gives the sections what an interrupted run finished, and whether it did.

        It does not where that ran elsewhere, with another torch or release, or over an hour ago. What was in doubt then
        is measured again.
        """
        here, there = self._known.values["device"], codec.to_json(partial.device)
        ours, its = ((each.host_fingerprint, each.tool_version) for each in (self._stamp, partial))
        if ours != its or there != here or not partial.created_at:
            return False
        if not 0 <= _seconds(self._stamp.created_at) - _seconds(partial.created_at) <= _FRESH_S:
            return False
        kept = {at: about for at, about in partial.measurements.items() if about.status not in STATUSES[1:]}
        for section in self._sections:
            section.restore(replace(partial, measurements=kept))
        return True


def _seconds(created_at: str) -> float:
    return datetime.fromisoformat(created_at).timestamp()
