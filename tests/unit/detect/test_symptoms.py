"""Error texts as programs print them, one a symptom, and texts that only look like one."""

import re

import pytest

from tests.unit.detect.scenes import STAMP, diagnosis_of, host_of, manager_of
from vllm_probe.core.device import Finding
from vllm_probe.detect import causes
from vllm_probe.detect.checks import ROWS
from vllm_probe.detect.doctor import diagnose
from vllm_probe.detect.symptoms import SYMPTOMS, Symptom, explain

FILES = {"/proc/cpuinfo": "processor\t: 0\nflags\t: sse4_2 avx avx2\n"}
TEXTS = [
    ("CTR-13", "RuntimeError: HIP error: no ROCm-capable device is detected"),
    ("CTR-13", "RuntimeError: No HIP GPUs are available"),
    ("XPU-01", "RuntimeError: No XPU devices are available."),
    ("DRV-01", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that"),
    ("DRV-01", "RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU"),
    ("DRV-01", "bash: line 1: nvidia-smi: command not found"),
    ("DRV-01", "/bin/sh: 1: nvidia-smi: not found"),
    ("DRV-02", "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service"),
    ("DRV-03", "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.144"),
    ("DRV-06", "NVRM: Xid (PCI:0000:41:00): 119, pid=4711, name=python3, Timeout after 6s of waiting for RPC response"),
    ("DRV-06", "NVRM: _kgspBootGspRm: unexpected WPR2 already up, cannot proceed with booting GSP"),
    (
        "DRV-09",
        "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing",
    ),
    ("DRV-12", "NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
    ("DRV-12", "Unable to determine the device handle for GPU0: 0000:01:00.0: GPU is lost.  Reboot the system"),
    ("DRV-12", "[ 4711.2] amdgpu 0000:03:00.0: amdgpu: GPU reset begin!. Source:  1"),
    ("DRV-13", "amdgpu 0000:03:00.0: amdgpu: Fatal error during GPU init"),
    ("DRV-14", "kfd kfd: amdgpu: skipped device 1002:67df, PCI rejects atomics"),
    ("DRV-15", "kfd kfd: amdgpu: skipped device 1002:15bf, PCI rejects atomics 494<509"),
    ("DRV-16", "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"),
    ("WSL-02", "nvidia-container-cli: initialization error: WSL environment detected but no adapters were found"),
    ("VER-01", "RuntimeError: The NVIDIA driver on your system is too old (found version 12080). Please update"),
    ("VER-01", "CUDA driver version is insufficient for CUDA runtime version"),
    ("VER-02", "RuntimeError: CUDA error: no kernel image is available for execution on the device"),
    (
        "VER-02",
        "NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.",
    ),
    ("VER-04", "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4"),
    ("VER-06", "Error 804: forward compatibility was attempted on non supported HW"),
    ("VER-07", "AssertionError: Torch not compiled with CUDA enabled"),
    ("VER-08", "RuntimeError: HIP error: invalid device function"),
    ("VER-08", 'hipErrorNoBinaryForGpu: Unable to find code object for all current devices!"'),
    ("MEM-01", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of"),
    ("MEM-01", "torch.cuda.OutOfMemoryError: HIP out of memory. Tried to allocate 20.00 MiB."),
    ("MEM-01", "RuntimeError: CUDA error: out of memory"),
    ("MEM-09", "subprocess.CalledProcessError: Command '['vllm']' died with <Signals.SIGKILL: 9>."),
    (
        "MEM-01",
        "ValueError: Free memory on device (7.34/139.72 GiB) on startup is less than desired GPU memory utilization",
    ),
    ("MEM-01", "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"),
    (
        "MEM-01",
        "ValueError: To serve at least one request with the models's max seq len (40960), (4.38 GiB KV cache",
    ),
    ("MEM-07", "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-pQxYGh (size 9637888)"),
    ("MEM-09", "Loading safetensors checkpoint shards: 33%\nKilled\n"),
    ("MEM-09", "run.sh: line 7:   4711 Killed                  vllm serve Qwen/Qwen3-8B"),
    ("MEM-09", "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=docker-1f.scope,task=python3,pid=4711"),
    ("MEM-09", "    Last State:     Terminated\n      Reason:       OOMKilled\n"),
    ("THM-08", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
    ("THM-08", "NVRM: Xid (PCI:0000:89:00): 94, pid=1, name=python3, Contained: SM (0x1). RST: No, D-RST: No"),
    ("PRT-02", "ValueError: invalid literal for int() with base 10: 'MIG-9b3e0a5c-0000'"),
    (
        "PRT-08",
        "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
    ),
    ("LIB-01", "ImportError: /lib64/libc.so.6: version `GLIBC_2.32' not found (required by vllm/_C.abi3.so)"),
    ("LIB-02", "ImportError: libstdc++.so.6: version `GLIBCXX_3.4.30' not found (required by x.so)"),
    ("LIB-03", "ImportError: libgomp-d22c30c5.so.1.0.0: cannot allocate memory in static TLS block"),
    (
        "LIB-04",
        "python3: error while loading shared libraries: libgomp.so.1: cannot open shared object file: No such file",
    ),
    ("LIB-06", "undefined symbol: __nvJitLinkComplete_12_4, version libnvJitLink.so.12"),
    ("LIB-07", "ImportError: libze_loader.so.1: cannot open shared object file: No such file or directory"),
    (
        "LIB-10",
        "RuntimeError: Failed to infer device type, please set the environment variable `VLLM_LOGGING_LEVEL=DEBUG`",
    ),
    ("LIB-11", "OSError: libcuda.so.1: cannot open shared object file: No such file or directory"),
    ("ENV-01", "RuntimeError: No CUDA GPUs are available"),
    ("ENV-01", "CUDA error: no CUDA-capable device is detected"),
    ("ASC-01", "ImportError: libascend_hal.so: cannot open shared object file: No such file or directory"),
    ("ASC-03", "dcmi module initialize failed. ret is -8005"),
    (
        "ASC-05",
        "RuntimeError: SetPrecisionMode: NPU function error: at_npu::native::AclSetCompileopt, error code is 500001",
    ),
    ("ASC-06", "RuntimeError: Initialize: NPU function error: aclrtSetDevice(device_id_), error code is 507033"),
    ("ASC-10", "[ERROR] RUNTIME(1,python3): ctx is NULL!"),
    ("ENV-09", "aclrtSetDevice failed, ret = 107001"),
    ("ENV-09", "RuntimeError: aclInit: error code is 107001"),
    ("XPU-04", "RuntimeError: level_zero backend failed with error: 20 (UR_RESULT_ERROR_DEVICE_LOST)"),
    ("XPU-03", "level_zero backend failed with error: 10 (UR_RESULT_ERROR_UNSUPPORTED_FEATURE)"),
    ("KRN-04", "NVRM: Xid (PCI:0000:01:00): 31, pid=4711, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS"),
    ("KRN-04", "NVRM: Xid (PCI:0000:01:00): 13, pid=4711, name=python3, Graphics SM Warp Exception on (GPC 0"),
    ("VER-11", "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory"),
    ("VER-13", "ImportError: /usr/lib/python3/dist-packages/vllm/_C.abi3.so: undefined symbol: _ZN3c106detail14torch"),
    ("VER-13", "flash_attn_2_cuda.cpython-312-x86_64-linux-gnu.so: undefined symbol: _ZN3c105ErrorC2ENS_14Source"),
    ("VER-14", "RuntimeError: FlashAttention only supports Ampere GPUs or newer."),
    ("VER-15", "ValueError: The quantization method awq is not supported for the current GPU. Minimum capability: 75."),
    (
        "VER-15",
        "ValueError(\"type fp8e4nv not supported in this architecture. The supported fp8 dtypes are ('fp8e4b15',",
    ),
    ("LIB-12", "ModuleNotFoundError: No module named 'flash_attn'"),
    (
        "LIB-12",
        "FlashAttention2 has been toggled on, but it cannot be used: the package flash_attn seems to be not installed.",
    ),
    ("LIB-14", "ModuleNotFoundError: No module named 'vllm._C'"),
    ("LIB-15", "ModuleNotFoundError: No module named 'vllm'"),
    ("LIB-15", "bash: vllm: command not found"),
    ("MEM-01", "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    (
        "MEM-07",
        "DistBackendError: NCCL error in: ../NCCLUtils.hpp:268, unhandled system error (run with NCCL_DEBUG=INFO",
    ),
    ("MEM-07", "OSError: [Errno 28] No space left on device: '/psm_21467f2e'"),
    ("MEM-13", "OSError: [Errno 28] No space left on device: '/root/.cache/huggingface/hub/tmpx'"),
    ("MGP-07", "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)"),
    ("MGP-07", "ncclUnhandledCudaError: Call to CUDA function failed."),
    ("MGP-08", "ValueError: World size (2) is larger than the number of available GPUs (1) in this node."),
    ("MDL-01", "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-66)"),
    ("MDL-01", "OSError: You are trying to access a gated repo."),
    ("MDL-02", "The checkpoint has model type `gpt_oss` but Transformers does not recognize this architecture."),
    ("MDL-03", "ValueError: Model architectures ['Qwen3NextForCausalLM'] are not supported for now. Supported"),
    ("MDL-04", "ValueError: Unknown RoPE scaling type llama3"),
    (
        "MDL-04",
        "ValueError: `rope_scaling` must be a dictionary with two fields, `type` and `factor`, got {'factor': 8.0}",
    ),
    ("MDL-05", "ValueError: User-specified max_model_len (65536) is greater than the derived max_model_len (max_pos"),
    ("MDL-06", "ValueError: Total number of attention heads (40) must be divisible by tensor parallel size (3)."),
    ("MDL-07", "consider setting `trust_remote_code=True` in LLM or using the `--trust-remote-code` flag in the CLI."),
    ("MDL-08", "ModuleNotFoundError: No module named 'sentencepiece'"),
    (
        "MDL-09",
        "ValueError: As of transformers v4.44, default chat template is no longer allowed, so you must provide a",
    ),
    ("MDL-10", "OSError: qwen/nope is not a local folder and is not a valid model identifier listed on 'https://hugg"),
    ("MDL-11", "OSError: We couldn't connect to 'https://huggingface.co' to load the files"),
    ("MDL-12", "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge"),
    (
        "BLD-01",
        "RuntimeError: Failed to find C compiler. Please specify via CC environment variable or set triton.knobs",
    ),
    ("BLD-02", "/usr/bin/ld: cannot find -lcuda: No such file or directory"),
    ("BLD-03", "main.c:5:10: fatal error: Python.h: No such file or directory"),
    ("BLD-04", "RuntimeError: Could not find nvcc and default cuda_home='/usr/local/cuda' doesn't exist"),
    ("BLD-05", "RuntimeError: No supported CUDA architectures found for major versions [9, 10]."),
    ("NET-01", "OSError: [Errno 98] Address already in use"),
    (
        "ENV-11",
        "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must",
    ),
    ("ENV-12", "RuntimeError: An attempt has been made to start a new process before the current process has finished"),
    ("KRN-05", "RuntimeError: CUDA error: device-side assert triggered"),
    ("CPU-01", "Illegal instruction (core dumped)"),
    ("CPU-01", "[1]    4711 illegal hardware instruction (core dumped)  vllm serve"),
    ("CPU-01", "traps: python3[4711] trap invalid opcode ip:7f0 sp:7ff error:0 in _C.abi3.so"),
]
INNOCENT = [
    "INFO: torch.cuda.memory: 3.2 GiB free, no out of memory",
    "INFO 07-01 killed worker 3 after 5 s",
    "Killed Kenny by process 4",
    "Xid 790 is no Xid line, NVRM: Xid (PCI:0000:01:00): 790, pid=1",
    "NVRM: Xid (PCI:0000:01:00): 131, pid=1, name=python3",
    "NVRM: Xid (PCI:0000:01:00): 43, pid=1, name=python3, Ch 0000",
    "CUDA error: an illegal instruction was encountered",
    "nvidia-smi 575.57.08 found",
    "libgomp.so.1 => /lib/x86_64-linux-gnu/libgomp.so.1 (0x00007f)",
    "libcuda.so.1 is not a symbolic link",
    "ldd: Name: GLIBC_2.32, found",
    "processed 107001 requests, 507033 tokens, 8005 errors",
    "seen 107001 rows before the ret statement",
    "exit status 1375",
    "bfloat16 is supported",
    "Free memory on device (70.1/80.0 GiB), desired GPU memory utilization is (0.9)",
    "Using max seq len 40960 to serve requests",
    "amdgpu: GPU resettable, [drm] initialized",
    "Driver version 575.57.08, library version 575.57.08",
    "The NVIDIA driver on your system is new (found version 13000)",
    "ret is -80050",
    "WARNING: Address already in use. Retrying with a new port.",
    "INFO: Cannot use FlashAttention-2 backend for Volta and Turing GPUs.",
    "No module named 'vllm_ascend'",
    "manifest for vllm-probe: not found",
    "NCCL version 2.27.3, no error unhandled",
    "Using max_model_len (4096), derived from the config",
    "Total number of attention heads: 40, tensor parallel size 3",
    "libcudart.so.12 => /usr/lib/libcudart.so.12 (0x00007f)",
]


def _found(log: str) -> tuple[Finding, ...]:
    host = host_of(files=FILES)
    return diagnose(host, manager_of(host), STAMP, log).findings


@pytest.mark.parametrize(("row", "log"), TEXTS)
def test_an_error_text_names_its_row_with_the_line_and_a_way_out(row: str, log: str) -> None:
    (finding,) = _found(f"first line\n{log}\nlast line")
    assert finding.id == row
    assert not finding.disables_device
    assert any(fact.removeprefix("log: ") in log for fact in finding.evidence if fact.startswith("log: "))
    shown = "\n".join((finding.cause, *(f"{fix.command} {fix.text} {fix.effect}" for fix in finding.fix)))
    assert re.findall(r"<[a-z ]+>", shown.replace("<cpu mode='host-passthrough'/>", "")) == []
    assert finding.cause.endswith(".")
    assert finding.cause.count(". ") == 0


@pytest.mark.parametrize("log", INNOCENT)
def test_a_text_that_only_looks_like_an_error_names_no_row(log: str) -> None:
    assert _found(log) == ()


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=[symptom.pattern[:30] for symptom in SYMPTOMS])
def test_the_first_row_of_each_symptom_exists(symptom: Symptom) -> None:
    assert symptom.rows[0] in ROWS | causes.ROWS


def test_on_wsl_1_the_row_of_wsl_1_is_named() -> None:
    log = "WSL environment detected but no adapters were found"
    for version, row in (("4.4.0-19041-Microsoft", "WSL-01"), ("5.15.90.1-microsoft-standard-WSL2", "WSL-02")):
        (finding,) = explain(host_of(files={"/proc/version": f"Linux version {version}"}), log, ())
        assert finding.id == row


def test_what_the_memory_cannot_hold_is_sent_to_negotiate() -> None:
    for log in ("torch.OutOfMemoryError: HIP out of memory.", "No available memory for the cache blocks."):
        (finding,) = _found(log)
        assert any("negotiate MODEL --engine vllm" in (fix.command or "") for fix in finding.fix)
        assert not any("--check LOG" in (fix.command or "") for fix in finding.fix)


@pytest.mark.parametrize(
    ("sizes", "share"),
    [
        ("7.34/23.52 GiB", "0.28"),
        ("70.0/80 GiB", "0.84"),
        ("0.2/24 GiB", "SHARE"),
        ("1/0 GiB", "SHARE"),
        ("?", "SHARE"),
    ],
)
def test_the_share_that_is_free_is_computed(sizes: str, share: str) -> None:
    (finding,) = _found(f"Free memory on device ({sizes}) on startup is less than desired GPU memory utilization")
    assert finding.fix[0].command == f"vllm serve MODEL --gpu-memory-utilization {share}"


def test_a_row_that_a_check_found_takes_the_line_and_no_second_row_is_named() -> None:
    known = causes.ROWS["DRV-12"].finding("0000:01:00.0", ("seen",))
    (finding,) = explain(host_of(), "NVRM: Xid (PCI:0000:01:00): 79, pid=1", (known,))
    assert finding.device == "0000:01:00.0"
    assert finding.evidence == ("seen", "log: NVRM: Xid (PCI:0000:01:00): 79, pid=1")


PIECES = (
    *("Xid (", "Xid (a: ", "aclrt ", "error code ", "ERRERR", "rtA", "aclacl", "GLIBC_2.", "GLIBCXX_3.", "libgomp"),
    *("Free memory on device ", "1 Killed", "Cannot read a", "/dev/shm/nccl-", "To serve at least one ", "\n", " "),
    *(
        "Model architectures [",
        "NCCL error ",
        "quantization method ",
        "huggingface.co/a",
        "model='a",
        "('",
        "sm_1",
        "]",
    ),
    *("PCI rejects atomics 1", "could not insert 'nvidia", "Direct firmware load for amdgpu/a"),
)


@pytest.mark.parametrize("piece", PIECES)
def test_a_log_of_beginnings_is_read_to_its_end(piece: str) -> None:
    """A pattern that takes quadratic time would keep this for hours."""
    assert explain(host_of(), piece * (600_000 // len(piece)), ()) == ()


def test_a_recorded_transcript_is_read_like_a_log() -> None:
    scene = {
        "facts": {"files": FILES, "commands": {"docker run x": "!rc=1\nRuntimeError: No CUDA GPUs are available\n"}}
    }
    assert [finding.id for finding in diagnosis_of(scene).findings] == ["ENV-01"]
