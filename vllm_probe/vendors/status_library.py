"""A vendor's C library whose functions return a status and write what they tell to their last arguments."""

from collections.abc import Callable, Mapping
from ctypes import Structure, byref, c_int
from typing import Any, ClassVar, TypeAlias

from vllm_probe.core.errors import LibraryTimeout, LibraryUnavailable
from vllm_probe.core.system import Library

Record: TypeAlias = dict[str, Any]


class Refused(Exception):
    """The library gave another status than 0."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class StatusLibrary:
    """A library that is asked by the newest name of a function that it has.

    Attributes:
        no_function: the status that it gives for a function that it lacks.
        word: the ctypes number that its functions write as a rule.
    """

    no_function: ClassVar[int]
    word: ClassVar[Any] = c_int

    def __init__(self, library: Library) -> None:
        self._library = library

    def call(self, symbols: str, *arguments: object) -> None:
        """Calls the first of `symbols`, written `x_v2 x`, that there is.

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
        raise Refused(self.no_function)

    def number(self, symbols: str, *arguments: object, kind: Any = None) -> int:
        """What the function writes to its last argument, a `word` or else of `kind`."""
        target = (kind or self.word)()
        self.call(symbols, *arguments, byref(target))
        return int(target.value)

    def structure(self, symbols: str, target: Structure, *arguments: object) -> Any:
        """`target`, filled."""
        self.call(symbols, *arguments, byref(target))
        return target


def answers(questions: Mapping[str, Callable[[], Any]]) -> Record:
    """What is known, with `failed` for the rest; one question that fails costs its own answer only."""
    known: Record = {}
    failed: Record = {}
    for name, ask in questions.items():
        try:
            value = ask()
        except Refused as refused:
            failed[name] = refused.status
        else:
            known |= {name: value} if value is not None else {}
    return known | ({"failed": failed} if failed else {})
