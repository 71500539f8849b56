"""Error texts that name a row by themselves: of recorded commands, and of a log that a user brings."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from vllm_probe.core.device import Device, Finding
from vllm_probe.core.rows import matching_line
from vllm_probe.core.system import Host
from vllm_probe.detect.causes import MARKERS, ROWS
from vllm_probe.detect.checks import ROWS as CHECKED
from vllm_probe.detect.checks.container import AMD, pass_in
from vllm_probe.detect.checks.runtime import NO_DEVICE_DRIVER
from vllm_probe.detect.logged import facts_of, question, variant, with_facts
from vllm_probe.detect.nodes import lxc_lines, npu_options


@dataclass(frozen=True, slots=True)
class Symptom:
    """A text and the rows that it speaks for.

    Attributes:
        pattern: regular expression.
        rows: keys of the rows that explain it; the first is reported when nothing here shows one of them.
    """

    pattern: str
    rows: tuple[str, ...]


_NOT_GIVEN = ("CTR-01", "CTR-07", "CTR-08", "CTR-17")
_UNLOADED = ("DRV-01", "DRV-02", "DRV-05", "DRV-07", "DRV-08", "WSL-04")


def _acl(*codes: str) -> str:
    """ACL's statuses, where a line calls them that: a bare number may be anything."""
    caller = r"(acl\w{0,40}|rt[A-Z]\w{0,40}|ERR\w{0,10}|[Ee]rror( code)?|ret)\b"
    return rf"{caller}.{{0,60}}\b({'|'.join(codes)})\b"


_SERVING = (
    Symptom(r"libcudart\.so\S{0,10}: cannot open shared object", ("VER-11",)),
    Symptom(r"\.so\S{0,20}: undefined symbol: _Z", ("VER-13",)),
    Symptom(r"FlashAttention only supports Ampere", ("VER-14",)),
    Symptom(
        r"(?i:quantization) (method|scheme).{0,80}not supported for the current GPU"
        r"|fp8e4nv (data type is )?not supported",
        ("VER-15",),
    ),
    Symptom(r"No module named ['\"]flash_attn|package flash_attn seems to be not installed", ("LIB-12",)),
    Symptom(r"No module named ['\"]vllm\._C", ("LIB-14",)),
    Symptom(
        r"No module named ['\"]?vllm['\"]?(?![.\w])|\bvllm: command not found|: vllm: not found"
        r"|command not found: vllm(?![-\w])",
        ("LIB-15",),
    ),
    Symptom(r"NCCL error.{0,200}unhandled cuda error|ncclUnhandledCudaError", ("MGP-07",)),
    Symptom(r"larger than the number of available GPUs|number of required \w{1,8} exceeds the total", ("MGP-08",)),
    Symptom(r"Cannot access gated repo|access a gated repo|\bGatedRepoError\b|is a gated repository", ("MDL-01",)),
    Symptom(r"Transformers does not recognize this architecture", ("MDL-02",)),
    Symptom(r"Model architectures? \[.{1,300}\] (are|is) not supported for now", ("MDL-03",)),
    Symptom(
        r"Unknown RoPE scaling type|rope_scaling\S{0,4} must be a dictionary|rope_scaling's type field must be",
        ("MDL-04",),
    ),
    Symptom(r"User-specified max_model_len \(\d{1,9}\) is greater than the derived max_model_len", ("MDL-05",)),
    Symptom(r"attention heads \(\d{1,5}\) must be divisible by tensor parallel size", ("MDL-06",)),
    Symptom(
        r"requires you to execute (custom code|the configuration file)|setting .trust_remote_code=True. in LLM"
        r"|contains custom code which must be executed",
        ("MDL-07",),
    ),
    Symptom(
        r"No module named ['\"](sentencepiece|tiktoken|google\.protobuf|blobfile)|requires the SentencePiece library"
        r"|Couldn't instantiate the backend tokenizer|[Cc]onverting from SentencePiece and Tiktoken failed",
        ("MDL-08",),
    ),
    Symptom(r"default chat template is no longer allowed|tokenizer\.chat_template is not set", ("MDL-09",)),
    Symptom(
        r"\bRepositoryNotFoundError\b|is not a local folder and is not a valid model identifier"
        r"|Invalid repository ID or local directory specified",
        ("MDL-10",),
    ),
    Symptom(
        r"couldn't connect to 'https://huggingface\.co|\bLocalEntryNotFoundError\b|\bOfflineModeIsEnabled\b"
        r"|Failed to resolve 'huggingface\.co'",
        ("MDL-11", "MDL-01"),
    ),
    Symptom(
        r"Error while deserializing header|\b(HeaderTooLarge|MetadataIncompleteBuffer)\b|Cannot find any model weights",
        ("MDL-12",),
    ),
    Symptom(r"Failed to find C compiler|\bInvalidCxxCompiler\b|No working C\+\+ compiler found", ("BLD-01",)),
    Symptom(r"cannot find -lcuda\b", ("BLD-02",)),
    Symptom(r"Python\.h: No such file", ("BLD-03",)),
    Symptom(r"CUDA_HOME environment variable is not set|Could not find nvcc|nvcc: (command )?not found", ("BLD-04",)),
    Symptom(
        r"No supported CUDA architectures|Unsupported gpu architecture|FlashInfer requires (GPUs with )?sm75",
        ("BLD-05",),
    ),
    Symptom(r"(?i:address already in use)(?!\. Retrying)|\bEADDRINUSE\b", ("NET-01",)),
    Symptom(r"Cannot re-initialize CUDA in forked subprocess", ("ENV-11",)),
    Symptom(r"attempt has been made to start a new process before the", ("ENV-12",)),
    Symptom(r"device-side assert triggered", ("KRN-05",)),
)
"""What vLLM and what it stands on say of a model, an option or an installation."""

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
        r"Could not initialize Tensile host: No devices found|no ROCm-capable device|No HIP GPUs are available",
        ("CTR-13/any", "CTR-12", "ENV-04", "ENV-05", "DRV-14"),
    ),
    Symptom(r"No XPU devices are available|No XPU device detected", ("XPU-01", "CTR-14", "CTR-15", "ENV-06", "LIB-07")),
    Symptom(r"(?i)devices\.allow\S{0,20}: operation not permitted", ("CTR-16",)),
    Symptom(r'no runtime for "nvidia" is configured', ("CTR-17",)),
    Symptom(r"couldn't communicate with the NVIDIA driver", ("DRV-01", "DRV-02", "DRV-07", "DRV-08")),
    Symptom(r"Found no NVIDIA driver on your system", ("DRV-01/absent", "DRV-02", "DRV-07", *_NOT_GIVEN, "LIB-11")),
    Symptom(r"nvidia-smi: (command )?not found|command not found: nvidia-smi", ("DRV-01/no-smi", *_NOT_GIVEN)),
    Symptom(r"insert 'nvidia\S{0,20}: Key was rejected|module with unavailable key is rejected", ("DRV-02",)),
    Symptom(
        r"Driver/library version mismatch|NVRM: API mismatch|system has unsupported display driver / cuda driver",
        ("DRV-03",),
    ),
    Symptom(
        r"Cannot initialize GSP firmware RM|failed to wait for GFW_BOOT|unexpected WPR2 already up"
        r"|\bXid \(.{1,40}: 1(19|20),",
        ("DRV-06",),
    ),
    Symptom(
        r"CUDA unknown error - this may be due to|\bCUDA_ERROR_UNKNOWN\b", ("DRV-09", "DRV-10", "CTR-04", "CTR-16")
    ),
    Symptom(r"\bXid \(.{1,40}: 79,|[Ff]allen off the bus|\bGPU is lost\b", ("DRV-12",)),
    Symptom(r"amdgpu: GPU re(set|covery)\b|HW Exception by GPU node", ("DRV-12/amd",)),
    Symptom(r"amdgpu: Fatal error during GPU init|Direct firmware load for amdgpu/\S{1,80} failed", ("DRV-13",)),
    Symptom(r"PCI rejects atomics [0-9]{1,6}<[0-9]{1,6}", ("DRV-15",)),
    Symptom(r"PCI rejects atomics(?! [0-9])", ("DRV-14",)),
    Symptom(r"(?i)\bsystem not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY", ("DRV-16",)),
    Symptom(r"WSL environment detected but no adapters were found", ("WSL-02", "WSL-01")),
    Symptom(
        r"driver on your system is too old \(found|CUDA driver version is insufficient for CUDA runtime", ("VER-01",)
    ),
    Symptom(
        r"no kernel image is available for execution|not compatible with the current PyTorch installation"
        r"|CUDA error: invalid device function",
        ("VER-02", "VER-03", "VER-04"),
    ),
    Symptom(r"(?i)bfloat16 is only supported on GPUs with compute capability of at least 8", ("VER-04/bfloat16",)),
    Symptom(r"forward compatibility was attempted on non supported HW", ("VER-06",)),
    Symptom(r"Torch not compiled with (CUDA|XPU) enabled", ("VER-07", "VER-09")),
    Symptom(
        r"HIP error: invalid device function|hipErrorNoBinaryForGpu|hipErrorInvalidDeviceFunction"
        r"|Cannot read \S{0,200}TensileLibrary",
        ("VER-08", "ENV-07"),
    ),
    Symptom(r"Free memory on device.{0,200}less than desired GPU memory utilization", ("MEM-01", "MEM-03", "MEM-02")),
    Symptom(
        r"\b(CUDA|HIP|XPU|NPU)( error:)? out of memory|torch(\.cuda)?\.OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY"
        r"|UR_RESULT_ERROR_OUT_OF_(DEVICE_MEMORY|RESOURCES)",
        ("MEM-01/allocation", "MEM-02"),
    ),
    Symptom(
        r"To serve at least one request with the model.{0,400}?estimated maximum model length is [1-9]"
        r"|larger than the maximum number of tokens that can be stored in KV cache \([1-9]",
        ("MEM-01/cache",),
    ),
    Symptom(
        r"To serve at least one request with the model(?!.{0,400}estimated maximum model length is [1-9])"
        r"|No available memory for the cache blocks",
        ("MEM-01/room",),
    ),
    Symptom(r"CUBLAS_STATUS_ALLOC_FAILED", ("MEM-01/allocation",)),
    Symptom(
        r"Error while creating shared memory segment|/dev/shm/\S{1,80}.{0,80}No space left"
        r"|No space left on device.{0,20}/(psm_|torch_|dev/shm)",
        ("MEM-07",),
    ),
    Symptom(r"unhandled system error|ncclSystemError", ("MEM-07/nccl",)),
    Symptom(r"No space left on device", ("MEM-13", "MEM-07")),
    Symptom(
        r"\boom-kill:|\bOOMKilled\b|Out of memory: Killed process|(?m:^Killed\r?$)|[0-9] Killed {2,40}\S"
        r"|\bexit(ed with)? (status|code):? 137\b|died with <Signals\.SIGKILL",
        ("MEM-09", "WSL-07"),
    ),
    Symptom(r"uncorrectable ECC error|\bXid \(.{1,40}: (48|63|64|94|95),", ("THM-08",)),
    Symptom(r"invalid literal for int\(\) with base 10: '(MIG|GPU)-", ("PRT-02",)),
    Symptom(r"CUDA-capable device\(s\) is/are busy or unavailable", ("PRT-08", "PRT-06", "PRT-07")),
    Symptom(r"\bGLIBC_2\.[0-9]{1,3}\S{0,3} not found", ("LIB-01",)),
    Symptom(r"\b(GLIBCXX|CXXABI)_[0-9.]{1,10}\S{0,3} not found", ("LIB-02",)),
    Symptom(r"cannot allocate memory in static TLS block", ("LIB-03",)),
    Symptom(r"libgomp\S{0,40}: cannot open shared object", ("LIB-04",)),
    Symptom(r"undefined symbol: __nvJitLink", ("LIB-06",)),
    Symptom(r"libze_loader\.so\S{0,10}: cannot open shared object", ("LIB-07",)),
    Symptom(
        r"Failed to infer device type|No platform detected, vLLM is running on UnspecifiedPlatform",
        ("LIB-10", "OTH-02"),
    ),
    Symptom(r"libcuda\.so\S{0,10}: cannot open shared object", ("LIB-11", "CTR-07", "CTR-05", "WSL-05")),
    Symptom(
        r"No CUDA GPUs are available|no CUDA-capable device is detected", ("ENV-01", "PRT-01", *_NOT_GIVEN, *_UNLOADED)
    ),
    Symptom(r"libascend_hal\.so: cannot open|Failed to load the backend extension: torch_npu", ("ASC-01", "ASC-02")),
    Symptom(r"dcmi module initialize failed|DrvMngGetConsoleLogLevel failed|\bret is -8005\b", ("ASC-03", "ASC-02")),
    Symptom(_acl("500001", "507008", "507899"), ("ASC-05/pair",)),
    Symptom(_acl("507033", "207001"), ("ASC-06",)),
    Symptom(_acl("107002") + r"|\bctx is NULL\b|context pointer null", ("ASC-10",)),
    Symptom(_acl("107001"), ("ENV-09",)),
    Symptom(r"UR_RESULT_ERROR_DEVICE_LOST|\bZE_RESULT_ERROR_DEVICE_LOST", ("XPU-04",)),
    Symptom(r"UR_RESULT_ERROR_UNSUPPORTED_FEATURE", ("XPU-03", "VER-12")),
    *_SERVING,
    Symptom(r"\bXid \(.{1,40}: (13|31),|an illegal memory access was encountered", ("KRN-04",)),
)


def explain(
    host: Host, log: str, findings: Iterable[Finding], path: str | None = None, devices: Sequence[Device] = ()
) -> tuple[Finding, ...]:
    """`findings` with what `log` adds to their evidence, and the rows that it alone shows.

    A row from a log alone disables no device: the text may come from another container or another day. `path` is what
    the user called the log, and `devices` are those of this machine, weighed.
    """
    known = list(findings)
    computes = any(device.usable and device.kind in {"gpu", "npu"} for device in devices)
    facts = facts_of(log, path) | question(log, has_accelerator=computes)
    for symptom in SYMPTOMS:
        line = matching_line(log, symptom.pattern)
        rows = {key.partition("/")[0] for key in symptom.rows}
        found = [index for index, finding in enumerate(known) if line and finding.id in rows]
        for index in found:
            known[index] = replace(known[index], evidence=tuple(dict.fromkeys((*known[index].evidence, line or ""))))
            if known[index].severity == "latent":
                known[index] = replace(known[index], severity="blocks", blocking=True)
        if line and not found:
            key, command = variant(symptom.rows[0], log, devices)
            reported = _reported(host, key, line, facts | ({"command": command} if command else {}))
            known.append(replace(with_facts(reported, facts), disables_device=False))
    return tuple(known)


def _reported(host: Host, key: str, line: str, facts: dict[str, str]) -> Finding:
    if key == "WSL-02" and re.search(r"Microsoft(?!.*WSL2)", host.read_text("/proc/version") or ""):
        key = "WSL-01"
    if key.partition("/")[0] in {AMD.hidden, AMD.denied}:
        return pass_in(host, key, AMD, None, (line,), node="/dev/kfd")
    nodes = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")
    values = MARKERS | facts | {"share": _share(line), "lxc": lxc_lines(host, nodes), "wanted": "true"}
    values["npus"] = npu_options(host, line)
    return (CHECKED | ROWS)[key].finding(None, (line,), **values)


def _share(line: str) -> str:
    """What vLLM may take of a device by its own message, rounded down; it needs 0.03 besides."""
    sizes = re.search(r"\(([0-9]{1,6}(?:\.[0-9]{1,3})?)/([0-9]{1,6}(?:\.[0-9]{1,3})?) GiB\)", line)
    if sizes is None or not float(sizes[2]):
        return "SHARE"
    share = float(sizes[1]) / float(sizes[2]) - 0.03
    return f"{int(share * 100) / 100:.2f}" if share >= 0.01 else "SHARE"
