"""Calls to a driver through its node, with the pointers that a request's structure holds."""

import ctypes
import sys
from collections.abc import Sequence

_TRIES = 100


def drive(handle: int, request: int, data: bytes, pointers: Sequence[int]) -> bytes | None:
    """What `Host.ioctl` gives for the open file `handle`."""
    places = {at: int.from_bytes(data[at : at + 8], sys.byteorder) for at in pointers}
    buffer = ctypes.create_string_buffer(data, len(data))
    view = memoryview(buffer).cast("B")
    for at, place in places.items():
        view[at : at + 8] = (ctypes.addressof(buffer) + place).to_bytes(8, sys.byteorder)
    if not _accepted(handle, request, view[: min(places.values(), default=len(data))]):
        return None
    for at in places:
        view[at : at + 8] = data[at : at + 8]
    return bytes(view)


def _accepted(handle: int, request: int, structure: memoryview) -> bool:
    """Whether the driver did what is asked; an interrupted call is made again, as drmIoctl of libdrm does."""
    try:
        import fcntl
    except ImportError:
        return False
    for _ in range(_TRIES):
        try:
            fcntl.ioctl(handle, request, structure, True)  # changes the structure in place
        except (InterruptedError, BlockingIOError):
            continue
        except OSError:
            return False
        return True
    return False
