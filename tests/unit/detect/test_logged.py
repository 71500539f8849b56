"""What a log tells for the commands that mend what it reports."""

from dataclasses import replace

import pytest

from tests.unit.detect.scenes import STAMP, host_of, manager_of
from vllm_probe.core.device import Device, Diagnosis, Verdict
from vllm_probe.detect.causes import ROWS
from vllm_probe.detect.doctor import diagnose
from vllm_probe.detect.logged import facts_of, next_step, question, variant
from vllm_probe.detect.symptoms import explain

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


LACKS = "GPU with CUDA capability {} is not compatible with the current PyTorch installation."


@pytest.mark.parametrize(
    ("log", "row", "text"),
    [
        (LACKS.format("sm_37"), "VER-02", "llama.cpp"),
        (LACKS.format("sm_87"), "VER-02", "JetPack"),
        ("Cannot read /opt/rocm/TensileLibrary.dat: Illegal seek for GPU arch : gfx803", "VER-08", "llama.cpp"),
        ("Cannot read /opt/rocm/TensileLibrary.dat: Illegal seek for GPU arch : gfx1031", "VER-08", "like GPU"),
    ],
)
def test_no_build_is_named_for_a_chip_in_the_log_that_none_has_kernels_for(log: str, row: str, text: str) -> None:
    (finding,) = told(log).findings
    assert finding.id == row
    assert "/whl/" not in f"{finding.fix}"
    assert text in finding.fix[0].text
    assert (finding.fix[0].command == "export HSA_OVERRIDE_GFX_VERSION=10.3.0") == ("gfx1031" in log)


@pytest.mark.parametrize(
    ("log", "row"),
    [
        (LACKS.format("sm_87"), "VER-02"),
        ("CUDA error: no kernel image is available for execution on the device", "VER-02"),
        ("The NVIDIA driver on your system is too old (found version 12020). Please", "VER-01"),
        ("Torch not compiled with CUDA enabled", "VER-07"),
    ],
)
def test_a_jetson_module_gets_its_own_build_for_a_log_too(log: str, row: str) -> None:
    unjudged = Verdict(code="usable", reason="it works")
    orin = Device(id="tegra:0", vendor="nvidia", kind="igpu", arch="sm_87", usable=True, verdict=unjudged)
    own = replace(orin, details={"stack": {"install": "pip install torch --index-url https://jetson"}})
    for device, command in (
        (orin, None),
        (own, "pip install --force-reinstall torch --index-url https://jetson"),
    ):
        (finding,) = explain(host_of(), log, (), devices=(device,))
        assert (finding.id, finding.fix[0].command) == (row, command)
    (other,) = explain(host_of(), LACKS.format("sm_120"), (), devices=(own,))
    assert (other.fix[0].command or "").endswith("/whl/cu128")


@pytest.mark.parametrize("key", ["VER-01", "VER-02", "VER-07", "VER-08"])
@pytest.mark.parametrize("arch", ["sm_37", "sm_87", "sm_90", "gfx803", "gfx1031", None])
def test_every_variant_that_a_log_leads_to_is_a_row(key: str, arch: str | None) -> None:
    named = {"s": LACKS.format(arch), "g": f"for GPU arch : {arch}"}[arch[0]] if arch else "HIP error"
    judged = Verdict(code="usable", reason="it works")
    orin = Device(id="tegra:0", vendor="nvidia", kind="igpu", arch="sm_87", usable=True, verdict=judged)
    assert {variant(key, named, devices)[0] for devices in ((), (orin,))} <= set(ROWS)


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
