"""NVML as typed questions."""

from ctypes import c_uint, create_string_buffer, sizeof

from vllm_probe.core.errors import LibraryUnavailable
from vllm_probe.core.system import Host, Library
from vllm_probe.vendors.status_library import StatusLibrary

NO_FUNCTION = 13

_NAMES = ("libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1", "nvml.dll")


class Nvml(StatusLibrary):
    """NVML."""

    no_function = NO_FUNCTION
    word = c_uint

    def text(self, symbols: str, *arguments: object) -> str | None:
        """What the function writes to a buffer, null where that is empty."""
        buffer = create_string_buffer(96)
        self.call(symbols, *arguments, buffer, sizeof(buffer))
        return buffer.value.decode("utf-8", "replace").strip() or None


def load(host: Host) -> Library:
    """NVML of this machine.

    Raises:
        LibraryUnavailable: with what the loader says of its usual name.
    """
    try:
        return host.library(_NAMES[0])
    except LibraryUnavailable:
        for name in _NAMES[1:]:
            if host.exists(name) or (name.endswith(".dll") and host.platform().system == "windows"):
                return host.library(name)
        raise
