"""Regional torch.compile: eager until compiled in the background, and eager wherever that would change the result."""

import logging
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from threading import Event, Lock, Thread, main_thread
from typing import Any, TypeAlias
from weakref import finalize

import torch
from torch.utils import _pytree as pytree

from vllm_probe.core.primitive import CompileHints
from vllm_probe.vendors.torchbase.keeping import Place, seal

_LOG = logging.getLogger(__name__)
_MOST_SIGNATURES = 8  # torch._dynamo.config.recompile_limit: what is over it would run eagerly anyway
_TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-3}
_OTHER_TOLERANCE = 1e-2
"""Largest relative error against eager: a compiler leaves out the roundings between operators, 2**-9 each in bf16."""

_SWITCH_S = 1e-4
"""How long the compiler may hold the interpreter: each operator of eager code waits as long to get it back."""

_PLACES = "torch._inductor.runtime.cache_dir_utils"
_Signature: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """What turns a function into code for a device.

    Attributes:
        name: compiler with its version; code of another one is not loaded.
        options: of inductor, besides those of the mode.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)


def unavailable() -> str | None:
    """Why this torch cannot be told where to keep what it compiles."""
    try:
        return None if hasattr(import_module(_PLACES), "temporary_cache_dir") else "temporary_cache_dir is not there"
    except ImportError as error:
        return str(error)


class Workshop:
    """A thread that compiles while there is something to, and the folder that it keeps its work in."""

    def __init__(self, place: Place) -> None:
        from torch._inductor import config

        config.compile_threads = 1  # no pool of processes beside ours
        self.place, self._open = place, True
        self._cache = import_module(_PLACES).temporary_cache_dir(str(place.path))
        self._cache.__enter__()
        self._leave = finalize(self, _leave, place)
        self._jobs: deque[Callable[[], None]] = deque()
        self._lock = Lock()
        self._thread: Thread | None = None

    def submit(self, job: Callable[[], None]) -> None:
        """Runs `job` in a thread, after those before it."""
        with self._lock:
            self._jobs.append(job)
            if self._thread is None:
                self._thread = Thread(target=self._work, name="compile")
                self._thread.start()

    def finish(self, timeout_s: float) -> bool:
        """Whether all that was submitted is done within `timeout_s`."""
        done = Event()
        self.submit(done.set)
        return done.wait(timeout_s)

    def close(self) -> None:
        """Drops what has not begun and waits for what has: a compiler that is torn from its process aborts it."""
        self._open, thread = False, self._thread
        if thread:
            thread.join()
        self._cache.__exit__(None, None, None)
        self._leave()

    def _work(self) -> None:
        interval = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        while job := self._next():
            job()
            if self.place.kept:
                seal(self.place.path)
        sys.setswitchinterval(interval)

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            if self._jobs and self._open and main_thread().is_alive():
                return self._jobs.popleft()
            self._thread = None
            return None


def _leave(place: Place) -> None:
    if not place.kept:
        shutil.rmtree(place.path, ignore_errors=True)


class Region:
    """A function that is compiled once for each kind of arguments, whose rows may be any number from two on."""

    def __init__(
        self,
        eager: Callable[..., Any],
        source: Callable[..., Any],
        hints: CompileHints,
        toolchain: Toolchain,
        workshop: Workshop,
    ) -> None:
        """Runs `eager` until `source`, which computes the same, is compiled."""
        options: dict[str, Any] = torch._inductor.list_mode_options(hints.mode)  # noqa: SLF001 - has no public name
        self._function, self._workshop, self._rows = eager, workshop, hints.rows
        self._compiled: Callable[..., Any] = torch.compile(
            source, fullgraph=True, dynamic=False, options=options | toolchain.options
        )
        self._known: dict[_Signature, Callable[..., Any]] = {}

    def __call__(self, *arguments: Any) -> Any:
        """What the function gives for `arguments`."""
        signature = self._signature(arguments)
        if signature is None:
            return self._function(*arguments)
        chosen = self._known.get(signature)
        if chosen is None:
            chosen = self._function
            if len(self._known) < _MOST_SIGNATURES:
                self._known[signature] = chosen
                copies = tuple(_copy(argument) for argument in arguments)
                inference = torch.is_inference_mode_enabled()
                self._workshop.submit(partial(self._compile, signature, copies, inference))
        return chosen(*arguments)

    def _signature(self, arguments: tuple[Any, ...]) -> _Signature | None:
        """All that compiled code depends on: everything but the rows, and of those which are equal; null for none."""
        counts = [len(arguments[position]) for position in self._rows]
        if min(counts) < 2:  # torch.compile takes sizes of 0 and 1 for constants
            return None
        kinds = [
            (argument.dtype, argument.shape[position in self._rows :], argument.stride(), argument.is_inference())
            if isinstance(argument, torch.Tensor)
            else argument
            for position, argument in enumerate(arguments)
        ]
        equal = tuple(counts.index(count) for count in counts)
        return (torch.is_inference_mode_enabled(), torch.is_grad_enabled(), equal, *kinds)

    def _compile(self, signature: _Signature, copies: tuple[Any, ...], inference: bool) -> None:
        name, begin = getattr(self._function, "__name__", "function"), time.perf_counter()
        try:
            with torch.inference_mode(inference), torch.set_grad_enabled(signature[1]):
                for position in self._rows:
                    torch._dynamo.mark_dynamic(copies[position], 0)  # noqa: SLF001 - documented, in no public module
                fault = _difference(self._compiled(*copies), self._function(*copies))
        except BaseException as error:  # noqa: BLE001 - isolation point: a compiler may raise anything
            fault = " ".join([f"{type(error).__name__}:", *str(error).splitlines()[:2]])
        if fault is None:
            self._known[signature] = self._compiled
            _LOG.info("%s compiled in %.1f s", name, time.perf_counter() - begin)
        else:
            _LOG.warning("%s stays eager: %s", name, fault)


def _copy(argument: Any) -> Any:
    """The values of `argument` in memory of its own, laid out the same."""
    if not isinstance(argument, torch.Tensor):
        return argument
    if 0 in argument.stride():
        return argument.clone(memory_format=torch.preserve_format)
    twin = torch.empty_strided(argument.shape, argument.stride(), dtype=argument.dtype, device=argument.device)
    return twin.copy_(argument)


def _difference(results: Any, expected: Any) -> str | None:
    """How far `results` are from `expected` where that is too far."""
    for result, exact in zip(pytree.tree_leaves(results), pytree.tree_leaves(expected), strict=True):
        if not isinstance(exact, torch.Tensor):
            if result != exact:
                return f"gives {result} and not {exact}"
            continue
        if (result.shape, result.dtype) != (exact.shape, exact.dtype):
            return f"gives {result.dtype} {[*result.shape]} and not {exact.dtype} {[*exact.shape]}"
        error = float((result.double() - exact.double()).norm() / exact.double().norm().clamp(min=1e-30))
        if not error <= _TOLERANCE.get(exact.dtype, _OTHER_TOLERANCE):
            return f"its result is off by {error:.1e}"
    return None
