"""Finds OpenCL devices. Drivers are loaded in a child process: one that crashes or hangs costs a finding, no more."""

import json
import sys
from contextlib import suppress

from vllm_probe.core import codec
from vllm_probe.core.device import Device, DeviceMemory, Verdict
from vllm_probe.core.errors import SchemaViolation
from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.rows import Row
from vllm_probe.core.system import CommandResult, Host
from vllm_probe.core.units import format_bytes
from vllm_probe_opencl.facts import DeviceFacts, Listing

LISTING = (sys.executable, "-P", "-m", "vllm_probe_opencl.devices")
"""The child; `-P` keeps the current folder from shadowing a library."""

_TIMEOUT_S = 8.0
_DRIVERS = "/etc/OpenCL/vendors/*.icd"
_PASSED = ("OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "PYTHONPATH", "VIRTUAL_ENV")
_POCL = ("shell", "apt-get install -y pocl-opencl-icd", "Install PoCL, or the driver of your device.", "adds a driver")
_ASK = ("shell", "clinfo -l", "See what another OpenCL program says.", "none")

NO_DRIVER = Row("OCL-01", "info", "No OpenCL driver is registered in /etc/OpenCL/vendors.", (_POCL,))
NO_DEVICE = Row("OCL-02", "degrades", "OpenCL drivers are registered, and none of them offers a device.", (_ASK,))
FAILED = Row("OCL-03", "degrades", "OpenCL devices cannot be listed: <reason>.", (_ASK,))


def probe(host: Host) -> ProbeResult:
    """Every device of every OpenCL platform, as `opencl:0` and so on."""
    env = {name: value for name in _PASSED if (value := host.env(name))}
    drivers = host.glob(_DRIVERS)
    if not drivers and not any(name.startswith("OCL_") for name in env):
        return ProbeResult(findings=(NO_DRIVER.finding(None, [f"{_DRIVERS}: no file"]),))
    answer = host.run(LISTING, _TIMEOUT_S, env)
    listing = parse_listing(answer.stdout)
    if answer.returncode != 0 or listing is None:
        return ProbeResult(findings=(FAILED.finding(None, drivers, reason=_reason(answer)),))
    if not listing.devices:
        return ProbeResult(findings=(NO_DEVICE.finding(None, drivers),))
    return ProbeResult(
        devices=tuple(_device(number, facts) for number, facts in enumerate(listing.devices)),
        unknown={
            f"/{number}{pointer}": reason
            for number, facts in enumerate(listing.devices)
            for pointer, reason in _UNKNOWN.items()
            if pointer != "/arch" or facts.arch is None
        },
    )


def parse_listing(text: str) -> Listing | None:
    """What the child printed; null when that is not a listing."""
    with suppress(json.JSONDecodeError, RecursionError, SchemaViolation):
        return codec.from_json(Listing, json.loads(text))
    return None


_UNKNOWN = {
    "/arch": "the driver does not name it",
    "/memory/usable_bytes": "OpenCL does not tell what is free",
    "/memory/used_bytes": "OpenCL does not tell what is in use",
}


def _device(number: int, facts: DeviceFacts) -> Device:
    return Device(
        id=f"opencl:{number}",
        vendor="opencl",
        kind=facts.kind,
        name=facts.name,
        arch=facts.arch,
        driver=f"{facts.platform} {facts.driver}",
        memory=DeviceMemory(reported_bytes=facts.memory_bytes, kind="shared" if facts.shares_memory else "dedicated"),
        indices={"opencl": number},
        adapter="opencl",
        usable=facts.available and facts.compiles,
        verdict=_verdict(facts),
        sources={"/memory/reported_bytes": "CL_DEVICE_GLOBAL_MEM_SIZE", "/kind": "CL_DEVICE_TYPE"},
        details={
            "platform": facts.platform,
            "version": facts.version,
            "svm": facts.svm,
            "group_lanes": facts.group_lanes,
            "sub_group_lanes": list(facts.sub_group_lanes),
            "threads": facts.compute_units,
            "caches": {"llc": facts.cache_bytes} if facts.cache_bytes else {},
            "frequency_mhz": {"max": facts.clock_mhz or None},
        },
    )


def _verdict(facts: DeviceFacts) -> Verdict:
    if not facts.available:
        return Verdict(code="unusable", reason=f"its driver {facts.platform} says that it is not available")
    if not facts.compiles:
        return Verdict(code="unusable", reason=f"its driver {facts.platform} has no compiler for kernels")
    through = "the processors of cpu0 through OpenCL: " if facts.kind == "cpu" else ""
    size = format_bytes(facts.memory_bytes)
    return Verdict(code="usable", reason=f"{through}{facts.compute_units} compute units, {size}, {facts.platform}")


def _reason(answer: CommandResult) -> str:
    if answer.status != "exited":
        return {"timeout": f"no answer in {_TIMEOUT_S:g} s", "missing": "Python cannot be started"}[answer.status]
    if answer.returncode and answer.returncode < 0:
        return f"a driver crashed with signal {-answer.returncode}"
    said = answer.stderr.strip() or answer.stdout.strip()
    return said.rpartition("\n")[2][:200] if answer.returncode else "the answer is not a listing"
