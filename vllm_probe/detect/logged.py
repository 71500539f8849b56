"""What a log itself tells for the commands that mend what it reports: model, numbers, build, the vendor's tool."""

import re
from collections.abc import Sequence
from dataclasses import replace
from shlex import quote

from vllm_probe.core.device import Device, Finding, Verdict
from vllm_probe.detect.builds import build_for, is_module, override_for, table

_NAME = r"([\w./@+:-]{1,200})"
_MODEL = (
    rf"\bmodel['\"]?[=:] ?['\"]{_NAME}['\"]",
    r"huggingface\.co/(?:api/models/)?([\w.-]{1,96}/[\w.-]{1,96}?)(?=[./]?(?:/|\s|$))",
    rf"(?m)\bvllm serve {_NAME}(?=[ \t]+--|[ \t]{{0,40}}$)",
)
_TOKENS = (
    r"estimated maximum model length is ([1-9]\d{0,8})\b",
    r"number of tokens that can be stored in KV cache \(([1-9]\d{0,8})\)",
    r"derived max_model_len \(\w{1,40}=([1-9]\d{0,8})(?:\.0)?\b",
)
_HOLDERS = (
    (r"\b(HIP|ROCm|rocm|amdgpu)\b", "amd-smi process"),
    (r"\b(XPU|xpu|UR_RESULT|Level Zero|level_zero)\b|UR_RESULT_", "sudo fuser -v /dev/dri/renderD*"),
    (r"\b(NPU|npu|Ascend|ascend)\b|\bacl[A-Z]", "npu-smi info"),
)
_START = re.compile(r"API server version|LLM engine \(v")
_WEIGHTS = re.compile(r"[Mm]odel loading took|[Ll]oading model weights took|model weights take")
_ACCELERATOR = re.compile(r"\b(CUDA|HIP|XPU|NPU|GPU)\b|detected platform (cuda|rocm|xpu)\b")
_FAILED = re.compile(r"(?i)\berror\b|\bexception\b|\btraceback\b|\bfatal\b|error:|Error\b")
_POINTS_UP = re.compile(r"See root cause above|Engine core initialization failed|check the stack trace above")
_CAPITALS = re.compile(r"\b(MODEL|LOG|TOKENS|DEVICES|RANKS|PORT|BUILD)\b")


def with_facts(finding: Finding, facts: dict[str, str]) -> Finding:
    """`finding` with what the log told in place of the capitals in its commands and of the markers in its texts."""

    def filled(text: str | None) -> str | None:
        return text and _CAPITALS.sub(lambda found: facts.get(found[1], found[1]), text)

    fixes = (replace(fix, command=filled(fix.command), text=filled(fix.text) or "") for fix in finding.fix)
    return replace(finding, fix=tuple(fixes))


def facts_of(log: str, path: str | None) -> dict[str, str]:
    """What `log`, which the user may have named as `path`, tells for commands: capitals and markers to their values."""
    found = {"MODEL": _model(log), "TOKENS": _first(_TOKENS, log), "BUILD": _build(log), "LOG": path and quote(path)}
    if world := re.search(r"number of available GPUs \((\d{1,4})\)", log):
        found["DEVICES"] = world[1]
    if port := re.search(r"\('[^']{0,100}', (\d{1,5})\)", log):
        found["PORT"] = port[1]
    heads = re.search(r"attention heads \((\d{1,5})\) must be divisible by tensor parallel size \((\d{1,5})\)", log)
    if heads:
        found |= _ranks(int(heads[1]), int(heads[2]))
    found["holders"] = next((tool for words, tool in _HOLDERS if re.search(words, log)), "nvidia-smi")
    return {name: value for name, value in found.items() if value}


def question(log: str, *, has_accelerator: bool) -> dict[str, str]:
    """How to ask `negotiate` about the start in `log`: with the log where it is whole, else without."""
    elsewhere = "" if has_accelerator or not _ACCELERATOR.search(log) else " --capability NAME"
    if _START.search(log) and _WEIGHTS.search(log):
        return {"asked": f"--check LOG{elsewhere}", "compared": ", and compared with the log line by line"}
    more = "; with --check and the whole log of the start, compared line by line too"
    return {"asked": f"--engine vllm{elsewhere}", "compared": more}


def variant(key: str, log: str, devices: Sequence[Device]) -> tuple[str, str | None]:
    """The variant of the row of a torch that does not fit, by the architecture in the log, and the command it takes.

    A log that names none is taken for one of the Jetson module among `devices` where there is one.
    """
    named = _arch(log)
    chip = next((each for each in devices if (each.arch == named if named else is_module(each))), None)
    if chip is None and named:
        vendor = "nvidia" if named.startswith("sm_") else "amd"
        unjudged = Verdict(code="unknown", reason="a log names it")
        chip = Device(id="log", vendor=vendor, kind="gpu", arch=named, usable=False, verdict=unjudged)
    if chip is None or key not in {"VER-01", "VER-02", "VER-07", "VER-08"}:
        return key, None
    if is_module(chip) and key != "VER-08":
        install = chip.details.get("stack", {}).get("install")
        command = install and install.replace("install", "install --force-reinstall", 1)
        return f"{key}/module{'' if install else '/none'}", command
    if named is None or key not in {"VER-02", "VER-08"} or build_for(named):
        return key, None
    override = override_for(chip, devices) if key == "VER-08" else None
    return (f"{key}/override", f"export {override.setting}") if override else (f"{key}/none", None)


def next_step(log: str, path: str | None) -> str:
    """What to do about a log in which nothing is known."""
    named = quote(path) if path else "LOG"
    if _POINTS_UP.search(log):
        return "it says that the engine failed and not why: that stands further up, so give the whole log"
    if not _FAILED.search(log):
        return "no line of it reports an error; give what stands before the program ended"
    search = f"`grep -n -m 5 -iE 'error|exception' {named}`"
    return f"see its first error with {search}, and look for that at https://github.com/vllm-project/vllm/issues"


def _model(log: str) -> str | None:
    name = _first(_MODEL, log)
    return quote(name) if name and not name.startswith("-") else None


def _first(patterns: tuple[str, ...], log: str) -> str | None:
    return next((found[1] for pattern in patterns if (found := re.search(pattern, log))), None)


def _build(log: str) -> str | None:
    """The build of torch for the architecture or the driver that the log names."""
    if too_old := re.search(r"too old \(found version (\d{2})\d{3}\)", log):
        tags = [each["tag"] for each in table()["vendors"]["nvidia"]["builds"]]
        return next((tag for tag in tags if tag.startswith(f"cu{too_old[1]}")), None)
    if arch := _arch(log):
        return build_for(arch)
    return build_for(None, "amd") if re.search(r"\bHIP error|hipError|TensileLibrary", log) else None


def _arch(log: str) -> str | None:
    """The architecture that the log names as that of its device."""
    found = re.search(r"CUDA capability (sm_\d{2,3})\b|\b(gfx[0-9a-f]{3,4})\b", log)
    return (found[1] or found[2]) if found else None


def _ranks(heads: int, asked: int) -> dict[str, str]:
    fitting = [ranks for ranks in range(1, min(heads, 64) + 1) if heads % ranks == 0]
    nearest = max(ranks for ranks in fitting if ranks <= max(asked, 1))
    return {"RANKS": str(nearest), "ranks": ", ".join(map(str, fitting)), "DEVICES": str(asked)}
