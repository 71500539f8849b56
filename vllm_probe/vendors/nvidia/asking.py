"""Asks NVML and the CUDA driver at the same time, each in a process of its own."""

from threading import Thread
from typing import Any, NamedTuple

from vllm_probe.core.errors import LibraryTimeout, LibraryUnavailable, RecordingIncomplete
from vllm_probe.core.system import Host
from vllm_probe.vendors.nvidia.verdict import Reports
from vllm_probe.vendors.software import container_kind

_TIMEOUT_S = 5.0


class Answer(NamedTuple):
    """A library's report, or why there is none: `missing`, `late` or `broken`, and in words."""

    report: dict[str, Any]
    state: str | None = None
    error: str | None = None


def ask(host: Host) -> Reports:
    """What both say; one that hangs, crashes or is missing leaves the other's report.

    Raises:
        RecordingIncomplete: a recording does not hold what they are asked.
    """
    answers: dict[str, Answer | RecordingIncomplete] = {}
    thread = Thread(target=_put_answer, args=(answers, host, "vllm_probe.vendors.nvidia.cuda:read", "the CUDA driver"))
    thread.start()
    _put_answer(answers, host, "vllm_probe.vendors.nvidia.lib:read", "NVML")
    thread.join()
    nvml, cuda = (_given(answers[name]) for name in ("NVML", "the CUDA driver"))
    return Reports(
        nvml=nvml.report,
        cuda=cuda.report,
        nvml_error=nvml.error,
        cuda_error=cuda.error,
        cuda_state=cuda.state,
        mask=host.env("CUDA_VISIBLE_DEVICES"),
        windows=host.platform().system == "windows",
        inside=container_kind(host) not in {None, "wsl"},
    )


def _put_answer(answers: dict[str, Answer | RecordingIncomplete], host: Host, function: str, name: str) -> None:
    try:
        answers[name] = _answer(host, function, name)
    except RecordingIncomplete as error:
        answers[name] = error


def _given(answer: Answer | RecordingIncomplete) -> Answer:
    if isinstance(answer, RecordingIncomplete):
        raise answer
    return answer


def _answer(host: Host, function: str, name: str) -> Answer:
    try:
        return Answer(host.isolated(function, _TIMEOUT_S))
    except LibraryTimeout:
        return Answer({}, "late", f"{name} did not answer within {_TIMEOUT_S:g} s")
    except LibraryUnavailable as error:
        broken = function in str(error)  # its process ended without an answer
        return Answer({}, "broken" if broken else "missing", str(error).replace(function, name))
