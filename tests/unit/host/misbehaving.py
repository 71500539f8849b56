"""What native libraries do to a process, for a child to run."""

import ctypes
import os
import time

from vllm_probe.core.errors import LibraryUnavailable
from vllm_probe.core.system import Host
from vllm_probe.core.values import JsonValue


def answers(host: Host) -> JsonValue:
    os.write(1, b"a banner of the library\n")
    return {"mask": host.env("ZE_AFFINITY_MASK")}


def refuses(host: Host) -> JsonValue:
    raise LibraryUnavailable("driver not loaded", hint="load it")


def crashes(host: Host) -> JsonValue:
    return str(ctypes.string_at(0))


def exits(host: Host) -> JsonValue:
    os.write(2, b"fatal: version mismatch\n")
    os._exit(3)


def hangs(host: Host) -> JsonValue:
    time.sleep(600)
    return None


def _part(host: Host, number: int, faults: dict[int, str]) -> str:
    def ask() -> str:
        fault = faults.get(number)
        if fault == "hang":
            time.sleep(600)
        elif fault == "crash":
            ctypes.string_at(0)
        elif fault == "refuse":
            raise LibraryUnavailable("refused", hint="load it")
        return "answered"

    try:
        return host.attempt(f"part {number}", ask)
    except LibraryUnavailable as error:
        return str(error)


def parts(host: Host) -> JsonValue:
    """Answers of eight parts; those that are named in the environment, as `1=hang 3=crash`, do that."""
    faults = dict(pair.split("=") for pair in (host.env("FAULTS") or "").split())
    return [_part(host, number, {int(each): fault for each, fault in faults.items()}) for number in range(8)]


def crashes_after_parts(host: Host) -> JsonValue:
    return [_part(host, 0, {}), ctypes.string_at(0).decode()]
