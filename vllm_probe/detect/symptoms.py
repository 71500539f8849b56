"""Error texts that name a row by themselves: of recorded commands, and of a log that a user brings."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from vllm_probe.core.device import Finding
from vllm_probe.core.rows import matching_line
from vllm_probe.core.system import Host
from vllm_probe.detect.checks import ROWS
from vllm_probe.detect.checks.container import AMD, pass_in
from vllm_probe.detect.checks.runtime import NO_DEVICE_DRIVER
from vllm_probe.detect.nodes import lxc_lines


@dataclass(frozen=True, slots=True)
class Symptom:
    """A text and the rows that it speaks for.

    Attributes:
        pattern: regular expression.
        ids: rows that explain it; the first is reported when no check found one of them.
        alone: the text is proof enough for that.
    """

    pattern: str
    ids: tuple[str, ...]
    alone: bool = True


SYMPTOMS = (
    Symptom(NO_DEVICE_DRIVER, ("CTR-01", "CTR-02")),
    Symptom(r"failed to add device rules.{0,200}device filters", ("CTR-03",)),
    Symptom(r"Failed to initialize NVML: Unknown Error", ("CTR-04", "CTR-03")),
    Symptom(r"initialization error: load library failed: libnvidia-ml\.so", ("CTR-05",)),
    Symptom(r"requirement error: unsatisfied condition: cuda ?>=", ("CTR-06",)),
    Symptom(r"unresolvable CDI devices", ("CTR-09",)),
    Symptom(r"failed to stat CDI host device|error stat'ing file /\S{0,200}nvidia", ("CTR-10",)),
    Symptom(r"Failed to initialize NVML: Insufficient Permissions", ("CTR-11",)),
    Symptom(r"/dev/kfd: no such file|kfd driver not loaded", ("CTR-12",)),
    Symptom(r"/dev/kfd read-write: Permission denied", ("CTR-13",)),
    Symptom(
        r"Could not initialize Tensile host: No devices found|no ROCm-capable device", ("CTR-12", "CTR-13"), alone=False
    ),
    Symptom(r"No XPU devices are available", ("CTR-14", "CTR-15"), alone=False),
    Symptom(r"(?i)devices\.allow\S{0,20}: operation not permitted", ("CTR-16",)),
    Symptom(r'no runtime for "nvidia" is configured', ("CTR-17",)),
)


def explain(host: Host, log: str, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """`findings` with what `log` adds to their evidence, and the rows that it alone shows.

    A row from a log alone disables no device: the text may come from another container or another day.
    """
    known = list(findings)
    for symptom in SYMPTOMS:
        line = matching_line(log, symptom.pattern)
        found = [index for index, finding in enumerate(known) if line and finding.id in symptom.ids]
        for index in found:
            known[index] = replace(known[index], evidence=(*known[index].evidence, line or ""))
            if known[index].severity == "latent":
                known[index] = replace(known[index], severity="blocks", blocking=True)
        if line and not found and symptom.alone:
            known.append(replace(_reported(host, symptom.ids[0], line), disables_device=False))
    return tuple(known)


def _reported(host: Host, row: str, line: str) -> Finding:
    if row in {AMD.hidden, AMD.denied}:
        return pass_in(host, row, AMD, None, (line,), node="/dev/kfd")
    nodes = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")
    return ROWS[row].finding(None, (line,), lxc=lxc_lines(host, nodes), wanted="true")
