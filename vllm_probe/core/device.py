"""Devices, findings and the documents of `detect` and `doctor`."""

from dataclasses import dataclass, field

from vllm_probe.core.document import Document
from vllm_probe.core.values import Bytes, JsonValue, Kind, MemoryKind, Natural, Severity, VerdictCode


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """Memory of a device; what a source does not give is null.

    Attributes:
        reported_bytes: what the driver or kernel reports in all.
        usable_bytes: what this process may allocate, after limits, reservations and other users.
        used_bytes: in use now.
        kind: dedicated, unified, shared or partition.
    """

    reported_bytes: Bytes | None = None
    usable_bytes: Bytes | None = None
    used_bytes: Bytes | None = None
    kind: MemoryKind | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a device can be used here, and why.

    Attributes:
        code: usable, limited (usable with limits), unusable, hidden (by an environment mask) or unknown.
        reason: one sentence for a person.
        findings: ids of the findings behind it.
    """

    code: VerdictCode
    reason: str
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator or the CPU.

    Attributes:
        id: stable address, such as `0000:03:00.0` or `cpu0`.
        vendor: folder name of the vendor plug-in.
        kind: cpu, gpu, igpu or npu.
        name: marketing name.
        arch: `sm_90`, `gfx942`, `910b3`, or for a CPU its best instruction set.
        driver: driver name and version.
        memory: sizes and kind.
        indices: number of the device in each numbering (nvml, cuda, drm_card, npu, ...).
        links: buses and peers.
        visible: false when an environment variable hides it.
        adapter: name of the adapter that runs it, or null.
        descriptor: name or path of the capability document that serves it, or null.
        usable: whether it can be initialised here and run by what is installed.
        verdict: the judgement in words.
        sources: JSON pointer within this device to where the value came from.
        details: facts that only this kind of device has (cores, caches, partitions, ...).
    """

    id: str
    vendor: str
    kind: Kind
    name: str | None = None
    arch: str | None = None
    driver: str | None = None
    memory: DeviceMemory = field(default_factory=DeviceMemory)
    indices: dict[str, Natural] = field(default_factory=dict)
    links: tuple[dict[str, JsonValue], ...] = ()
    visible: bool = True
    adapter: str | None = None
    descriptor: str | None = None
    usable: bool = False
    verdict: Verdict = field(default_factory=lambda: Verdict(code="unknown", reason="not judged yet"))
    sources: dict[str, str] = field(default_factory=dict)
    details: dict[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """One way out of a finding.

    Attributes:
        where: where it must be typed: shell, host, docker, podman, kubernetes, lxc, image, windows or bios.
        command: exact command or configuration text, null when it is not one.
        text: what to do, one sentence.
        effect: what else it changes.
    """

    where: str
    command: str | None = None
    text: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, or that looks wrong and is not.

    Attributes:
        id: row of the catalogue, such as `CTR-13`.
        severity: blocks, degrades, latent or info.
        blocking: whether its severity is blocks: something does not work until it is fixed.
        disables_device: whether the device cannot be initialised here because of it, or not run by what is installed.
        device: id of the device concerned, null for the whole machine.
        evidence: the facts that led to it, each with its source.
        cause: why, one sentence.
        fix: ways out, nearest first.
    """

    id: str
    severity: Severity
    blocking: bool
    disables_device: bool = False
    device: str | None = None
    evidence: tuple[str, ...] = ()
    cause: str
    fix: tuple[Fix, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """What would run a model here, read without importing it; null when not installed.

    Attributes:
        python: version of the interpreter.
        torch: version of torch with its build tag.
        vllm: version of vLLM.
        kernel: operating system kernel release.
        container: docker, podman, kubernetes, lxc, wsl or null for a bare machine.
    """

    python: str | None = None
    torch: str | None = None
    vllm: str | None = None
    kernel: str | None = None
    container: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A device that somebody would pick, and why.

    Attributes:
        id: device id, null when none would be picked.
        reason: one sentence.
        others: id of every other device to why it would not be picked.
    """

    id: str | None
    reason: str
    others: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory(Document):
    """What is on this machine: the document of `detect`.

    Attributes:
        platform: operating system and machine type, such as `linux x86_64`.
        software: what is installed.
        devices: every device found, usable or not, sorted by id.
        picked: the device that bench, negotiate and serve take without `--device`.
        vllm_pick: the device that vLLM would take.
        findings: what went wrong while looking.
    """

    platform: str
    software: Software
    devices: tuple[Device, ...]
    picked: Choice
    vllm_pick: Choice
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceVerdict:
    """A device as `doctor` lists it.

    Attributes:
        id: stable address.
        vendor: vendor plug-in.
        kind: cpu, gpu, igpu or npu.
        arch: architecture or null.
        usable: whether it can be used here.
        verdict: the judgement in words.
    """

    id: str
    vendor: str
    kind: Kind
    arch: str | None
    usable: bool
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis(Document):
    """What is wrong and how to fix it: the document of `doctor`.

    Attributes:
        devices: every device with its verdict.
        findings: most severe first.
        not_checked: what could not be looked at, and why.
    """

    devices: tuple[DeviceVerdict, ...]
    findings: tuple[Finding, ...] = ()
    not_checked: tuple[str, ...] = ()
