"""`negotiate --check`: a log beside the prediction, and what is kept of it."""

import stat
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.unit.negotiate.test_check import KV, START

ASK = ("negotiate", "Qwen3-8B", "--capability", "h100-sxm-80gb", "--check", "vllm.log")
KEPT = ".local/state/vllm-probe/residuals/vllm-0.19-nvidia-h100-sxm-80gb-tp1.json"


def test_a_log_as_predicted_ends_with_0_and_its_residual_is_private(cli: Cli, tmp_path: Path) -> None:
    Path("vllm.log").write_text(START)
    ended = cli(*ASK, width=120, plugins="cpu,nvidia")
    assert ended.code == 0, ended
    assert "vllm.log: boots, boots predicted; as predicted" in ended.out
    undo = f"to undo that: rm {tmp_path / 'home' / KEPT}"
    assert "".join(undo.split()) in "".join(ended.out.split())
    assert not Path("runtime.json").exists()
    kept = tmp_path / "home" / KEPT
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_a_later_prediction_for_that_version_and_device_uses_and_says_it(cli: Cli) -> None:
    Path("vllm.log").write_text(START.replace(KV, "Available KV cache memory: 56.3 GiB"))
    assert cli(*ASK, plugins="cpu,nvidia").code == 1
    ask = ("negotiate", "Qwen3-8B", "--capability", "h100-sxm-80gb", "--engine", "vllm", "--json", "--engine-version")
    same, other = (cli(*ask, version, plugins="cpu,nvidia").json() for version in ("0.19.2", "0.18"))
    assert "the memory law of vLLM 0.19.0 is corrected by +1.20 GiB" in str(same["warnings"])
    assert "corrected" not in str(other["warnings"])
    assert same["budget"]["non_torch_bytes"] - other["budget"]["non_torch_bytes"] > 1 << 30


def test_a_log_that_differs_ends_with_1_and_is_printed_whole(cli: Cli) -> None:
    Path("vllm.log").write_text(START.replace("15.27 GiB", "17.27 GiB"))
    ended = cli(*ASK, "--json", plugins="cpu,nvidia")
    assert (ended.code, ended.error) == (1, "log-differs")
    figures = ended.json()["checks"][0]["figures"]
    assert [figure["quantity"] for figure in figures if not figure["is_within"]] == ["weights_bytes"]


def test_a_log_that_cannot_be_used_ends_with_2(cli: Cli) -> None:
    assert cli(*ASK, plugins="cpu,nvidia").error == "unreadable-file"
    Path("vllm.log").write_text("nothing of the kind\n")
    assert cli(*ASK, plugins="cpu,nvidia").error == "bad-usage"
    Path("vllm.log").write_bytes(b"\xff\xfe\x00 vLLM API server version 0.19.0\n")
    assert cli(*ASK, plugins="cpu,nvidia").code == 0
    assert cli(*ASK, "--engine", "bundled", plugins="cpu,nvidia").error == "bad-usage"


def test_a_log_of_another_platform_is_refused_and_teaches_nothing(cli: Cli, tmp_path: Path) -> None:
    Path("vllm.log").write_text(f"INFO [__init__.py:216] Automatically detected platform rocm.\n{START}")
    ended = cli(*ASK, plugins="cpu,nvidia")
    assert (ended.code, ended.error) == (2, "bad-usage")
    assert "vllm.log is of vLLM's platform rocm, and NVIDIA H100 SXM 80GB is no such device" in ended.err
    assert not (tmp_path / "home" / KEPT).exists()


def test_the_last_words_of_a_failure_are_refused_and_sent_to_doctor(cli: Cli) -> None:
    Path("vllm.log").write_text("ValueError: No available memory for the cache blocks. Try increasing\n")
    ended = cli(*ASK, plugins="cpu,nvidia")
    assert (ended.code, ended.error) == (2, "bad-usage")
    assert "from its first line on; `vllm-probe doctor --log vllm.log` explains the failure" in ended.err


def test_a_log_without_figures_has_no_table_and_says_what_to_add(cli: Cli) -> None:
    Path("vllm.log").write_text("INFO vLLM API server version 0.19.0\nCUDA out of memory. Tried to allocate 2 GiB\n")
    ended = cli(*ASK, plugins="cpu,nvidia")
    assert (ended.code, ended.error) == (1, "log-differs")
    assert "line by line" not in ended.out
    assert "it states no figure that is predicted" in ended.out
    assert "say with options what the log leaves open" in ended.err


def test_a_residual_that_somebody_damaged_is_said_and_not_used(
    cli: Cli, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = tmp_path / "home" / KEPT
    kept.parent.mkdir(parents=True)
    kept.write_text('{"residual_bytes": "many"}')
    ended = cli(*ASK[:4], "--engine", "vllm", "--engine-version", "0.19", "--json", plugins="cpu,nvidia")
    assert ended.code == 0, ended
    assert "corrected" not in ended.out
    assert f"{kept} is not used" in caplog.text


def test_a_refusal_names_the_share_that_was_pinned(cli: Cli) -> None:
    ask = ("negotiate", "Qwen3-14B", "--engine", "vllm", "--capability", "rtx-5090", "--quantization", "none")
    ended = cli(*ask, "--gpu-memory-utilization", "0.5", plugins="cpu,nvidia")
    assert (ended.code, ended.error) == (1, "does-not-fit")
    assert "of the 15.68 GiB that gpu_memory_utilization 0.5 gives of 31.36 GiB: oom" in ended.err
