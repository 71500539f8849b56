"""Pointers in the structure of a request, and calls that are interrupted or refused."""

import ctypes
import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from vllm_probe.host import ioctls
from vllm_probe.host.ioctls import drive


def test_a_pointer_is_an_address_for_the_driver_and_an_offset_before_and_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def driver(_handle: int, _request: int, structure: memoryview, _mutate: bool) -> None:
        assert len(structure) == 16
        address = int.from_bytes(structure[8:16], "little")
        assert ctypes.string_at(address, 4) == b"ask\0"
        ctypes.memmove(address, b"told", 4)
        structure[0:8] = (7).to_bytes(8, "little")

    monkeypatch.setattr(fcntl, "ioctl", driver)
    data = bytes(8) + (16).to_bytes(8, "little") + b"ask\0"
    assert drive(0, 1, data, (8,)) == (7).to_bytes(8, "little") + (16).to_bytes(8, "little") + b"told"


@pytest.mark.parametrize("interruption", [errno.EINTR, errno.EAGAIN])
def test_an_interrupted_call_is_made_again(monkeypatch: pytest.MonkeyPatch, interruption: int) -> None:
    ended = [OSError(interruption, "interrupted"), OSError(interruption, "interrupted"), None]

    def driver(*_: Any) -> None:
        error = ended.pop(0)
        if error:
            raise error

    monkeypatch.setattr(fcntl, "ioctl", driver)
    assert drive(0, 1, b"data", ()) == b"data"
    assert not ended


def test_a_driver_that_is_always_interrupted_has_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def driver(*_: Any) -> None:
        raise InterruptedError

    monkeypatch.setattr(fcntl, "ioctl", driver)
    monkeypatch.setattr(ioctls, "_TRIES", 3)
    assert drive(0, 1, b"data", ()) is None


def test_the_kernel_refuses_a_request_that_a_file_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    handle = os.open(path, os.O_RDWR)
    try:
        assert drive(handle, 0xC0106479, bytes(16), ()) is None
    finally:
        os.close(handle)
