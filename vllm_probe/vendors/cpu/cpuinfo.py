"""What /proc/cpuinfo and sysfs say about processors. Every parser here is total."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_LADDERS = (
    {
        "sse4_2": "sse4_2",
        "avx": "avx",
        "avx2": "avx2",
        "avx512": "avx512f",
        "avx512_vnni": "avx512_vnni",
        "avx512_bf16": "avx512_bf16",
        "amx": "amx_tile",
    },
    {"neon": "asimd", "sve": "sve", "sve2": "sve2", "sme": "sme"},
)
"""Architecture word to the kernel's flag, ascending (Linux cpufeatures.h; arm64 elf_hwcaps.rst)."""

_NOTED = ("fma", "f16c", "avx_vnni", "avx512_fp16", "amx_bf16", "amx_int8", "amx_fp16", "asimdhp", "i8mm", "bf16")
"""Flags that decide which number formats are computed natively."""

_ARM_PARTS = {
    ("0x41", "0xd0c"): "Arm Neoverse-N1",
    ("0x41", "0xd40"): "Arm Neoverse-V1",
    ("0x41", "0xd49"): "Arm Neoverse-N2",
    ("0x41", "0xd4f"): "Arm Neoverse-V2",
    ("0x48", "0xd01"): "HiSilicon Kunpeng 920",
    ("0xc0", "0xac3"): "Ampere-1",
}
"""Implementer and part of cores whose /proc/cpuinfo has no name (util-linux sys-utils/lscpu-arm.c)."""

_SMALL_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuInfo:
    """The parts of /proc/cpuinfo that matter here.

    Attributes:
        model: marketing name.
        flags: features that every listed processor has.
        processors: numbers of the listed processors.
        cores: processor to its core, where the kernel says.
        mhz: clock of the first processor.
    """

    model: str | None
    flags: frozenset[str]
    processors: tuple[int, ...]
    cores: dict[int, tuple[str, str]]
    mhz: float | None


def parse_cpuinfo(text: str) -> CpuInfo:
    """Facts from /proc/cpuinfo of x86 or Arm; anything else gives what little it says."""
    blocks = [_fields(block) for block in re.split(r"\n\s*\n", text)]
    listed = [fields for fields in blocks if _SMALL_NUMBER.fullmatch(fields.get("processor", ""))]
    features = {fields.get("flags") or fields.get("Features") or "" for fields in listed}
    first = listed[0] if listed else {}
    clock = re.match(r"[0-9]{1,9}(\.[0-9]{1,9})?", first.get("cpu MHz", ""))
    return CpuInfo(
        model=first.get("model name") or _ARM_PARTS.get((first.get("CPU implementer", ""), first.get("CPU part", ""))),
        flags=frozenset.intersection(*(frozenset(words.split()) for words in features)) if features else frozenset(),
        processors=tuple(sorted({int(fields["processor"]) for fields in listed})),
        cores={
            int(fields["processor"]): (fields["physical id"], fields["core id"])
            for fields in listed
            if "physical id" in fields and "core id" in fields
        },
        mhz=float(clock[0]) or None if clock else None,
    )


def _fields(block: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in block.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def format_cpu_list(numbers: Iterable[int]) -> str:
    """`numbers` as the kernel writes them: `0-3,8`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def parse_size_kib(text: str | None) -> int | None:
    """Bytes of a sysfs cache size such as `32768K`; null for 0, which virtual machines report for unknown."""
    match = re.fullmatch(r"([0-9]{1,9})K", (text or "").strip())
    return int(match[1]) * 1024 or None if match else None


def parse_khz(text: str | None) -> float | None:
    """MHz of a cpufreq value in kHz; a clock of 0 is unknown."""
    match = re.fullmatch(r"([0-9]{1,9})", (text or "").strip())
    return int(match[1]) / 1000 or None if match else None


def isa_words(flags: frozenset[str], machine: str) -> tuple[str, ...]:
    """Instruction sets among `flags` in ascending order, then the flags of single number formats.

    Every 64-bit Arm processor has `neon`, so `machine` alone gives it.
    """
    known = flags | {"asimd"} if machine in {"aarch64", "arm64"} else flags
    ladder = (word for words in _LADDERS for word, flag in words.items() if flag in known)
    return (*ladder, *(flag for flag in _NOTED if flag in known))


def best_isa(isa: Iterable[str]) -> str | None:
    """The architecture word for a processor with the instruction sets `isa`."""
    return next((word for ladder in _LADDERS for word in reversed(ladder) if word in set(isa)), None)
