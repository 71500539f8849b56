"""How a long step tells its caller where it is."""

from typing import Protocol


class Progress(Protocol):
    """Receives each step of a long operation."""

    def __call__(self, step: str, done: int, total: int) -> None:
        """`done` of `total` steps are over and `step` begins; the last call has `done == total`."""


def silent(step: str, done: int, total: int) -> None:
    """A `Progress` that shows nothing."""
