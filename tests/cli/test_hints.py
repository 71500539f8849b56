"""Hints that are followed as they stand, and what is said once and first."""

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

ON_H100 = ("--capability", "h100-sxm-80gb", "--engine", "vllm")
ON_4090 = ("--capability", "rtx-4090", "--engine", "vllm")


def _commands(text: str) -> list[list[str]]:
    return [shlex.split(line)[1:] for line in re.findall("`(vllm-probe [^`]+)`", text)]


def test_every_command_of_a_refusal_boots_when_it_is_typed(cli: Cli) -> None:
    for asked in (
        ("Llama-3.3-70B", *ON_4090, "--max-model-len", "4096", "--quantization", "none", "--concurrency", "4"),
        ("--model", "DeepSeek-V3", *ON_4090),
        ("GLM-5.3", "--capability", "rtx-4090", "--enforce-eager"),
    ):
        ended = cli("negotiate", *asked)
        assert (ended.code, ended.error) == (1, "does-not-fit")
        found = _commands(ended.err.splitlines()[-1])
        assert found
        for command in found:
            assert cli(*command).code == 0, command
            assert "--capability" in command


@pytest.mark.parametrize(
    "asked",
    [
        ("Qwen3-8B",),
        (
            "Qwen3-8B",
            "--device-memory",
            "7GiB",
            "--objective",
            "memory",
            "--engine-version",
            "0.31.0",
            "--enforce-eager",
        ),
        (
            "Qwen3-8B",
            "--input-len",
            "600",
            "--output-len",
            "20",
            "--concurrency",
            "3",
            "--gpu-memory-utilization",
            "0.5",
        ),
    ],
)
def test_a_saved_config_that_cannot_boot_is_answered_with_whole_commands_that_ask_the_same(
    cli: Cli, asked: tuple[str, ...]
) -> None:
    on_laptop = ("--capability", "rtx-4060-laptop", "--engine", "vllm")
    Path("big.json").write_text(cli("negotiate", *asked, *on_laptop, "--json").out)
    for command in (("export", "vllm"), ("export", "docker"), ("serve",)):
        ended = cli(*command, "big.json")
        assert (ended.code, ended.error) == (1, "does-not-fit")
        found = _commands(ended.err.splitlines()[-1])
        assert len(found) == 3
    for words in found:
        assert cli(*words).code == 0, words
        for option in (*on_laptop, *asked[1:]):
            assert option in words or option == "7GiB"
    assert json.loads(Path("runtime.json").read_text())["budget"]["verdict"] == "boots"


@pytest.mark.parametrize(
    ("capability", "said"),
    [
        ("quick bench of cpu0 (sha256:00)", ["--device", "cpu0"]),
        ("/not/here/rtx-4090.capability.json", ["--capability", "rtx-4090"]),
        ("cpu.json (sha256:00)", ["--capability", "cpu.json"]),
    ],
)
def test_a_device_is_named_again_by_what_is_here(cli: Cli, capability: str, said: list[str]) -> None:
    found = cli("negotiate", "GLM-5.3", "--capability", "cpu.json", "--engine", "vllm", "--json").json()
    Path("big.json").write_text(json.dumps(found | {"capability": capability, "device": "cpu0"}))
    named = [words[4:6] for words in _commands(cli("export", "vllm", "big.json").err)]
    assert named == [said] * 3


def test_the_command_of_another_value_takes_the_place_of_the_one_that_was_typed(cli: Cli) -> None:
    ended = cli("negotiate", "Qwen3-8B", *ON_4090, "--input-len", "50000", "--json")
    (command,) = _commands(ended.err)[:1]
    assert command.count("--input-len") == 1
    assert command[-2:] != ["--input-len", "50000"]
    assert "--json" in command


def test_a_config_for_a_checkpoint_that_is_nowhere_says_what_to_obtain_and_no_command_that_would_be_refused(
    cli: Cli,
) -> None:
    ended = cli("negotiate", "Llama-3.3-70B", *ON_H100, "--concurrency", "8")
    assert ended.code == 0
    assert "it is for an FP8 checkpoint of Llama-3.3-70B-Instruct, which has to be obtained first" in ended.err
    assert "base_model:quantized:meta-llama/Llama-3.3-70B-Instruct lists those" in ended.err
    assert f"\nvllm-probe negotiate CHECKPOINT {shlex.join(ON_H100)} --concurrency 8\n" in ended.err
    assert "vllm-probe serve" not in ended.err
    assert "--quantization none" not in ended.err
    exported = cli("export", "vllm")
    assert (exported.code, exported.error) == (3, "weights-unavailable")
    (command,) = _commands(exported.err)
    command[command.index("CHECKPOINT")] = "Llama-3.3-70B-FP8"
    assert cli(*command).code == 0
    assert cli("export", "vllm").code == 0


def test_a_pinned_method_is_not_asked_of_the_checkpoint_that_has_it(cli: Cli) -> None:
    pinned = ("--tensor-parallel-size", "8", "--quantization", "w4a16")
    ended = cli("negotiate", "DeepSeek-V3", *ON_H100, *pinned)
    assert f"\nvllm-probe negotiate CHECKPOINT {shlex.join(ON_H100)} --tensor-parallel-size 8\n" in ended.err


def test_a_failure_says_which_older_config_stays(cli: Cli) -> None:
    assert "is kept" not in cli("negotiate", "GLM-5.3", "--capability", "rtx-4090").err
    assert cli("negotiate", "Qwen3-Embedding-0.6B", "--capability", "cpu.json").code == 0
    before = Path("runtime.json").read_text()
    for model in ("GLM-5.3", "no-such-model", "qwen3"):
        ended = cli("negotiate", model, "--capability", "rtx-4090")
        assert ended.code != 0
        assert "runtime.json is kept as it was: Qwen3-Embedding-0.6B on cpu0 (cpu), engine bundled\n" in ended.err
    assert Path("runtime.json").read_text() == before
    assert "is kept" not in cli("negotiate", "GLM-5.3", "--capability", "rtx-4090", "--output", "other.json").err
    assert "is kept" not in cli("negotiate", "GLM-5.3", "--capability", "rtx-4090", "--json").err


def test_a_model_that_the_engine_cannot_run_is_said_first_and_once_with_the_command_that_helps(cli: Cli) -> None:
    ended = cli("negotiate", "gpt-oss-20b", "--capability", "cpu.json", "--concurrency", "4")
    reason = "GptOssForCausalLM needs --engine vllm"
    assert ended.err.startswith("warning: the bundled runtime of this release does not generate: ")
    assert ended.err.count(reason) == 1
    assert reason not in " ".join(ended.out.split())
    (command,) = _commands(ended.err)
    assert cli(*command).code == 0
    again = cli("negotiate", "gpt-oss-20b", "--capability", "cpu.json", "--json")
    assert any(reason in line for line in again.json()["warnings"])


@pytest.mark.parametrize(("engine", "said"), [((), "boots with --engine vllm: "), (("--engine", "vllm"), "boots: ")])
def test_a_family_is_listed_by_what_boots_with_which_engine(cli: Cli, engine: tuple[str, ...], said: str) -> None:
    hint = cli("negotiate", "qwen3", "--capability", "cpu.json", "--device-memory", "64GiB", *engine).err
    assert "Qwen3-0.6B" in hint.rpartition(said)[2].partition(";")[0]


def test_what_alternatives_need_is_what_each_boots_with_so_that_they_can_be_ranked(cli: Cli) -> None:
    asked = ("negotiate", "DeepSeek-V3", *ON_H100)
    found = cli(*asked, "--json").json()["alternatives"]
    assert len(found) > 2
    for other in found:
        budget = other["budget"]
        fixed = sum(budget[f"{part}_bytes"] for part in ("weights", "activation", "non_torch", "graph"))
        assert fixed < other["least_bytes"] < budget["requested_bytes"], other["change"]
    ended = cli(*asked, width=200)
    for other in found[:2]:
        assert f"({other['least_bytes'] / (1 << 30):.2f} GiB)" in ended.err
    assert "needs at least" in ended.out
    assert len({other["least_bytes"] for other in found}) == len(found)
