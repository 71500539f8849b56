"""What a log tells for the commands that mend what it reports."""

import pytest

from tests.unit.detect.scenes import STAMP, host_of, manager_of
from vllm_probe.core.device import Diagnosis
from vllm_probe.detect.doctor import diagnose
from vllm_probe.detect.logged import facts_of, next_step, question

FILES = {"/proc/cpuinfo": "processor\t: 0\nflags\t: sse4_2 avx avx2\n"}
START = "INFO vLLM API server version 0.19.0\nINFO non-default args: {'model': 'Qwen/Qwen3-8B'}\n"
LOADED = "INFO Model loading took 15.27 GiB memory and 12.5 seconds\n"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"


def told(log: str, path: str | None = None) -> Diagnosis:
    host = host_of(files=FILES)
    return diagnose(host, manager_of(host), STAMP, log, log_path=path)


def commands(log: str, path: str | None = None) -> list[str]:
    return [fix.command for finding in told(log, path).findings for fix in finding.fix if fix.command]


@pytest.mark.parametrize(
    ("log", "model"),
    [
        ("with config: model='Qwen/Qwen3-8B', tokenizer='x'", "Qwen/Qwen3-8B"),
        (START, "Qwen/Qwen3-8B"),
        ("Cannot access gated repo for url https://huggingface.co/a/B-3.3/resolve/main/config.json.", "a/B-3.3"),
        ("Make sure to have access to it at https://huggingface.co/a/B-3.3.", "a/B-3.3"),
        ("$ vllm serve ./models/mine --port 1", "./models/mine"),
        ("model='; rm -rf ~'", None),
        ("$ vllm serve mine\nValueError", "mine"),
        ("start it with the vllm serve command again", None),
        ("vllm serve --model x", None),
    ],
)
def test_the_model_that_the_log_names_stands_in_the_commands(log: str, model: str | None) -> None:
    assert facts_of(log, None).get("MODEL") == model


def test_the_length_that_would_fit_stands_in_the_command() -> None:
    log = (
        "To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, which is "
        "larger than the available KV cache memory (7.42 GiB). Based on the available memory, the estimated maximum "
        "model length is 60784. Try"
    )
    assert commands(log)[0] == "vllm serve MODEL --max-model-len 60784"
    over = (
        "User-specified max_model_len (65536) is greater than the derived max_model_len (max_position_embeddings=32768"
    )
    assert commands(over)[0] == "vllm serve MODEL --max-model-len 32768"


def test_where_no_length_would_fit_the_command_asks_for_none() -> None:
    found = commands("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`")
    assert found[0] == "vllm serve MODEL --gpu-memory-utilization 0.95"
    assert not any("--max-model-len" in command for command in found)


def test_a_whole_start_is_compared_with_its_own_log_and_anything_less_is_not() -> None:
    whole = commands(START + LOADED + OOM, "my log.txt")
    assert "vllm-probe negotiate Qwen/Qwen3-8B --check 'my log.txt' --capability NAME" in whole
    for less in (OOM, START + OOM, LOADED + OOM):
        assert not any("--check" in command for command in commands(less, "my log.txt"))


def test_a_log_of_an_accelerator_is_asked_about_with_a_descriptor_where_none_is_here() -> None:
    assert question(OOM, has_accelerator=True)["asked"] == "--engine vllm"
    assert question(OOM, has_accelerator=False)["asked"] == "--engine vllm --capability NAME"
    assert question("No available memory for the cache blocks", has_accelerator=False)["asked"] == "--engine vllm"


@pytest.mark.parametrize(
    ("log", "tool"),
    [
        ("CUDA out of memory", "nvidia-smi"),
        ("HIP out of memory", "amd-smi process"),
        ("XPU out of memory", "sudo fuser -v /dev/dri/renderD*"),
        ("UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", "sudo fuser -v /dev/dri/renderD*"),
        ("NPU out of memory", "npu-smi info"),
    ],
)
def test_who_holds_the_memory_is_asked_with_the_tool_of_the_logs_vendor(log: str, tool: str) -> None:
    assert tool in commands(f"RuntimeError: {log}. Tried to allocate")


@pytest.mark.parametrize(
    ("log", "build"),
    [
        (
            "NVIDIA RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.",
            "cu128",
        ),
        ("Tesla V100 with CUDA capability sm_70 is not compatible with the current PyTorch installation.", "cu126"),
        ("RuntimeError: HIP error: invalid device function", "rocm7.2"),
        ("The NVIDIA driver on your system is too old (found version 12020). Please", "cu128"),
        ("The NVIDIA driver on your system is too old (found version 11040). Please", "BUILD"),
        ("CUDA error: no kernel image is available for execution on the device", "BUILD"),
    ],
)
def test_the_build_that_runs_on_the_logs_chip_or_driver_is_named(log: str, build: str) -> None:
    assert commands(log)[0].endswith(f"/whl/{build}")


def test_the_numbers_that_divide_the_heads_are_listed_and_the_nearest_is_taken() -> None:
    log = "Total number of attention heads (40) must be divisible by tensor parallel size (3)."
    first, second = told(log).findings[0].fix
    assert first.command == "vllm serve MODEL --tensor-parallel-size 2"
    assert first.text == "Take a number that divides them: 1, 2, 4, 5, 8, 10, 20, 40."
    assert second.command == "vllm serve MODEL --pipeline-parallel-size 3"


def test_devices_and_port_are_those_of_the_message() -> None:
    few = "ValueError: World size (4) is larger than the number of available GPUs (2) in this node."
    assert commands(few) == ["vllm serve MODEL --tensor-parallel-size 2"]
    port = "error while attempting to bind on address ('0.0.0.0', 8080): address already in use"
    assert "sudo ss -ltnp | grep ':8080 '" in commands(port)


@pytest.mark.parametrize(
    ("log", "step"),
    [
        ("everything is fine", "no line of it reports an error"),
        ("ValueError: a thing that nobody knows", "grep -n -m 5 -iE 'error|exception' 'a b.log'"),
        ("RuntimeError: Engine core initialization failed. See root cause above.", "give the whole log"),
    ],
)
def test_a_log_that_is_not_understood_has_a_next_step(log: str, step: str) -> None:
    assert step in next_step(log, "a b.log")
    assert any(reason.startswith("the log: ") and step in reason for reason in told(log, "a b.log").not_checked)


def test_a_line_that_two_texts_know_is_quoted_once() -> None:
    (finding,) = told("OSError: [Errno 28] No space left on device: '/psm_1'").findings
    assert len(finding.evidence) == 1
