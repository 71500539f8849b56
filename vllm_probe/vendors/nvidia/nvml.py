"""NVML as typed questions."""

from ctypes import Structure, byref, c_uint, c_void_p, create_string_buffer, sizeof
from typing import Any

from vllm_probe.core.errors import LibraryTimeout, LibraryUnavailable
from vllm_probe.core.system import Host, Library

NO_FUNCTION = 13

_NAMES = ("libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1", "nvml.dll")


class Refused(Exception):
    """NVML gave another status than 0."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Nvml:
    """NVML, asked by the newest name of a function that the library has."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def call(self, symbols: str, *arguments: object) -> None:
        """Calls the first of `symbols`, written `nvmlX_v2 nvmlX`, that there is.

        Raises:
            Refused: with the status.
            LibraryTimeout: it does not return.
        """
        for symbol in symbols.split():
            try:
                status = self._library.call(symbol, *arguments)
            except LibraryTimeout:
                raise
            except LibraryUnavailable:
                continue
            if status != 0:
                raise Refused(status)
            return
        raise Refused(NO_FUNCTION)

    def number(self, symbols: str, *arguments: object, kind: Any = c_uint) -> int:
        """What the function writes to its last argument."""
        target = kind()
        self.call(symbols, *arguments, byref(target))
        return int(target.value)

    def text(self, symbols: str, *arguments: object) -> str | None:
        """What the function writes to a buffer, null where that is empty."""
        buffer = create_string_buffer(96)
        self.call(symbols, *arguments, buffer, sizeof(buffer))
        return buffer.value.decode("utf-8", "replace").strip() or None

    def structure(self, symbols: str, handle: c_void_p, target: Structure) -> Any:
        """`target`, filled."""
        self.call(symbols, handle, byref(target))
        return target


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
