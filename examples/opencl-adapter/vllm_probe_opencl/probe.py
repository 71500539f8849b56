"""Finds OpenCL devices. Drivers are loaded in a child process: one that crashes or hangs costs a finding, no more."""

import json
import sys
from contextlib import suppress

from vllm_probe.core import codec
from vllm_probe.core.errors import SchemaViolation
from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.rows import Row
from vllm_probe.core.system import CommandResult, Host

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
    found = parse(answer.stdout)
    if answer.returncode != 0 or found is None:
        return ProbeResult(findings=(FAILED.finding(None, drivers, reason=_reason(answer)),))
    return found if found.devices else ProbeResult(findings=(NO_DEVICE.finding(None, drivers),))


def parse(text: str) -> ProbeResult | None:
    """What the child printed; null when that is something else."""
    with suppress(json.JSONDecodeError, RecursionError, SchemaViolation):
        return codec.from_json(ProbeResult, json.loads(text))
    return None


def _reason(answer: CommandResult) -> str:
    if answer.status != "exited":
        return {"timeout": f"no answer in {_TIMEOUT_S:g} s", "missing": "Python cannot be started"}[answer.status]
    if answer.returncode and answer.returncode < 0:
        return f"a driver crashed with signal {-answer.returncode}"
    said = answer.stderr.strip() or answer.stdout.strip()
    return said.rpartition("\n")[2][:200] if answer.returncode else "the answer is no description of devices"
