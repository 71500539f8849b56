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
    time.sleep(60)
    return None
