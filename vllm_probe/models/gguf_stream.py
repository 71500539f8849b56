"""The values of a GGUF header, read forward through a small window."""

import struct
from pathlib import Path
from typing import BinaryIO

from vllm_probe.core.errors import InvalidModel
from vllm_probe.core.values import JsonValue

MAX_ITEMS = 1 << 12
MAX_READ_BYTES = 32 << 20  # the merges of a vocabulary of 262,144 alone are 10 MB
_MAX_TEXTS = 1 << 20
_WINDOW_BYTES = 1 << 18
_MAX_TEXT = 1 << 12
_MAX_DEPTH = 4
_ROOM = 1 << 16  # items of arrays, all together
_TEXT, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Number of a value type to the letter of `struct`."""


class Stream:
    """A file of `size` bytes from its beginning; `order` is `<` or `>`, `path` is for messages.

    At most `MAX_READ_BYTES` are read in all, and at most a window of 256 KiB is held beside what is kept of the values.
    """

    def __init__(self, file: BinaryIO, size: int, path: Path) -> None:
        self.size = size
        self.path = path
        self.order = "<"
        self._file = file
        self._window = b""
        self._at = 0
        self._begin = 0
        self._budget = MAX_READ_BYTES
        self._room = _ROOM

    @property
    def position(self) -> int:
        """Bytes that were passed."""
        return self._begin + self._at

    def take(self, count: int) -> bytes:
        """The next `count` bytes, which are at most a window.

        Raises:
            InvalidModel: the file ends before, or its header is longer than any model's.
        """
        if self._at + count > len(self._window):
            self._fill(count)
        begin = self._at
        self._at += count
        return self._window[begin : self._at]

    def skip(self, count: int) -> None:
        """Passes over `count` bytes; what lies beyond the window is not read."""
        self._at += count
        if self.position > self.size:
            raise self.invalid(f"a value ends at byte {self.position} of {self.size}")
        if self._at > len(self._window):
            self._begin, self._at, self._window = self.position, 0, b""
            self._file.seek(self._begin)

    def number(self, letter: str) -> int:
        """The next number, `letter` being its format in `struct`."""
        value: int = struct.unpack(self.order + letter, self.take(struct.calcsize("=" + letter)))[0]
        return value

    def text(self, limit: int = _MAX_TEXT) -> str:
        """The next string.

        Raises:
            InvalidModel: longer than `limit`, or not UTF-8.
        """
        length = self.number("Q")
        if length > limit:
            raise self.invalid(f"a string of {length} bytes where at most {limit} are due")
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise self.invalid("a string is not UTF-8") from error

    def value(self, *, keeps: bool) -> JsonValue:
        """The next value behind its type; null for text and arrays unless it `keeps` them, and for long ones."""
        return self._value(self.number("I"), keeps=keeps, depth=0)

    def _value(self, kind: int, *, keeps: bool, depth: int) -> JsonValue:
        if kind in _SCALARS:
            return self._scalar(kind)
        if kind == _TEXT:
            return self._text() if keeps else self.skip(self.number("Q"))
        if kind != _ARRAY or depth == _MAX_DEPTH:
            raise self.invalid(f"a value of type {kind} {depth} arrays deep")
        item, count = self.number("I"), self.number("Q")
        if item not in _SCALARS and item not in (_TEXT, _ARRAY):
            raise self.invalid(f"an array of type {item}")
        if keeps and count <= min(MAX_ITEMS, self._room):
            self._room -= count
            return [self._value(item, keeps=True, depth=depth + 1) for _ in range(count)]
        if item in _SCALARS:
            return self.skip(count * struct.calcsize("=" + _SCALARS[item]))
        if item == _TEXT:
            return self._skip_texts(count)
        if count > self._room:
            raise self.invalid(f"an array of {count} arrays")
        self._room -= count
        for _ in range(count):
            self._value(item, keeps=False, depth=depth + 1)
        return None

    def _scalar(self, kind: int) -> JsonValue:
        if kind == 7 and self.take(1) not in (b"\0", b"\1"):
            raise self.invalid("a truth value is neither 0 nor 1")
        if kind == 7:
            return self._window[self._at - 1] == 1
        return self.number(_SCALARS[kind])

    def _text(self) -> str | None:
        """The next string, null where it is longer than any that matters."""
        length = int.from_bytes(self.take(8), "little" if self.order == "<" else "big")
        if length > _MAX_TEXT:
            self.skip(length)
            return None
        self._at -= 8
        return self.text()

    def _skip_texts(self, count: int) -> None:
        """Passes over `count` strings; a vocabulary has hundreds of thousands, so that each takes a few steps only."""
        if count > _MAX_TEXTS:
            raise self.invalid(f"an array of {count} strings")
        unpack, at, window = struct.Struct(self.order + "Q").unpack_from, self._at, self._window
        for _ in range(count):
            if at + 8 > len(window):
                self._at = at
                self._fill(8)
                at, window = self._at, self._window
            at += 8 + unpack(window, at)[0]
            if at > len(window):
                self._at = len(window)
                self.skip(at - len(window))
                at, window = self._at, self._window
        self._at = at

    def _fill(self, count: int) -> None:
        """Moves the window so that it begins at the position and holds `count` bytes."""
        rest = self._window[self._at :]
        more = self._file.read(max(count, _WINDOW_BYTES) - len(rest))
        self._budget -= len(more)
        if self._budget < 0:
            raise self.invalid(f"its header has more than {MAX_READ_BYTES} bytes")
        self._begin, self._at, self._window = self.position, 0, rest + more
        if len(self._window) < count:
            raise self.invalid(f"it ends at byte {self.position + len(self._window)}, in the middle of a value")

    def invalid(self, reason: str) -> InvalidModel:
        """The error for what the format forbids."""
        return InvalidModel(f"{self.path}: {reason}", hint="the file is damaged or not GGUF; get it again")
