"""Ctrl-C while torch is imported waits for the end of that: torch's native code drops it, or ends the process."""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from threading import current_thread, main_thread
from types import FrameType, ModuleType


def await_torch() -> None:
    """Has it so from now on in this process."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


class _Finder:
    """Finds torch where Python does, with a loader of its own."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of torch, null for any other module."""
        spec = PathFinder.find_spec(name, path, target) if name == "torch" else None
        if spec and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """As its base, and Ctrl-C comes through when it is done."""

    def exec_module(self, module: ModuleType) -> None:
        """Runs the code of `module`."""
        with _held():
            super().exec_module(module)


@contextmanager
def _held() -> Iterator[None]:
    """Keeps the first SIGINT until the end; one more does not wait."""
    before = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or not callable(before):
        yield
        return
    pressed: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        if len(pressed) > 1:
            before(number, frame)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if pressed:
            before(pressed[0], None)
