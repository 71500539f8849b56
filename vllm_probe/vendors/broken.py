"""Capability descriptors of this machine that cannot be read, which every search passes over."""

from collections.abc import Iterator
from shlex import quote

from vllm_probe.core.device import Finding
from vllm_probe.core.errors import ProbeError
from vllm_probe.core.rows import Row
from vllm_probe.vendors.descriptors import descriptor_files, load_capability, search_path
from vllm_probe.vendors.registry import PortableDeviceManager

_BROKEN = Row(
    "CAP-01",
    "degrades",
    cause="The capability descriptor <path> cannot be used, so what it tells of a device counts for nothing.",
    fix=(
        (
            "shell",
            "vllm-probe capability validate <typed>",
            "See what is wrong with it, then mend it or put it away; `vllm-probe bench` writes a new one.",
            "none",
        ),
    ),
)


def broken_descriptors(manager: PortableDeviceManager, fingerprint: str) -> Iterator[Finding]:
    """One finding for each file on the search path that no release put there and that is no capability document."""
    for place in search_path(manager, fingerprint):
        for file in () if place.shipped else descriptor_files(place):
            try:
                load_capability(file)
            except ProbeError as error:
                said = str(error) if str(file) in str(error) else f"{file}: {error}"
                yield _BROKEN.finding(None, (said,), path=file, typed=quote(str(file)))
