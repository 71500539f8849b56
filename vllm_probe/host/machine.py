"""Small pieces of x86-64 code, for what no library does: they are mapped, called, and never written to again."""

import ctypes
import mmap
import os
import platform
from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def mapped(code: bytes, *arguments: type[Any]) -> Callable[..., None] | None:
    """A function of `code`, which takes `arguments` (ctypes types) by the System V convention and returns nothing.

    Null on other processors and systems, and where a security policy refuses memory that can be executed.
    """
    if os.name != "posix" or platform.machine().lower() not in {"x86_64", "amd64"}:
        return None
    try:
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    except OSError:
        return None
    page.write(code)
    function: Any = ctypes.CFUNCTYPE(None, *arguments)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    function.page = page  # lives as long as the function
    return function  # type: ignore[no-any-return]
