"""A thread for work that may never return: native code cannot be interrupted from the thread that called it."""

from collections.abc import Callable
from threading import Event, Thread
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Worker(Generic[Made]):
    """Runs `work` in a daemon thread, once started; whatever it raises is raised where it is waited for."""

    def __init__(self, work: Callable[[], Made]) -> None:
        self._work = work
        self._over = Event()
        self._made: Made | None = None
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="worker", daemon=True)

    def start(self) -> None:
        """Begins; Ctrl-C may interrupt the caller while the work goes on."""
        self._thread.start()

    def wait(self, limit_s: float) -> bool:
        """Whether it is over within `limit_s`; Ctrl-C interrupts the waiting, not the work."""
        return self._over.wait(limit_s)

    def result(self) -> Made:
        """What the work gave, once it is over."""
        if self._error:
            raise self._error
        return self._made  # type: ignore[return-value]  # set, as nothing was raised

    def _run(self) -> None:
        try:
            self._made = self._work()
        except SystemExit as error:  # of native code's bindings: it would end the process without a word
            self._error = RuntimeError(f"it called sys.exit({error.code!r})")
        except BaseException as error:  # noqa: BLE001 - raised again by `result`
            self._error = error
        finally:
            self._over.set()
