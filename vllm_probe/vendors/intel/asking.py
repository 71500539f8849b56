"""Asks Level Zero, in a process of its own."""

from typing import Any

from vllm_probe.core.errors import LibraryTimeout, LibraryUnavailable
from vllm_probe.core.system import Host
from vllm_probe.vendors.intel.verdict import MASK, SELECTOR, Reports
from vllm_probe.vendors.software import container_kind

_TIMEOUT_S = 5.0
_FUNCTION = "vllm_probe.vendors.intel.lib:read"
_DRIVERS = (
    "/usr/lib/*/libze_intel_gpu.so*",
    "/usr/lib64/libze_intel_gpu.so*",
    "/usr/local/lib*/libze_intel_gpu.so*",
    "/opt/intel/oneapi/*/lib/libze_intel_gpu.so*",
)


def ask(host: Host, gpus: int) -> Reports:
    """What Level Zero says of the `gpus` that a driver runs, or why it says nothing."""
    report: dict[str, Any] = {}
    error = state = None
    try:
        report = host.isolated(_FUNCTION, _TIMEOUT_S)
    except LibraryTimeout:
        error, state = f"Level Zero did not answer within {_TIMEOUT_S:g} s", "late"
    except LibraryUnavailable as failure:
        broken = _FUNCTION in str(failure)  # its process ended without an answer
        error, state = str(failure).replace(_FUNCTION, "Level Zero"), "broken" if broken else "missing"
    return Reports(
        level_zero=report,
        error=error,
        state=state,
        driver=next((path for pattern in _DRIVERS for path in host.glob(pattern)), None),
        mask=host.env(MASK),
        selector=host.env(SELECTOR),
        gpus=gpus,
        inside=container_kind(host) not in {None, "wsl"},
    )
