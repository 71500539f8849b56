"""A long step shows where it is: a bar on a terminal, elsewhere a line of the log for each step."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_probe.cli.render.progress import logged


def test_a_step_is_logged_once_when_it_begins_so_that_the_last_line_is_the_one_that_hangs(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.INFO), logged("load") as advance:
        for done in range(40):
            advance("weights, MiB", done, 40)
        advance("layer 1", 0, 2)
        advance("layer 2", 1, 2)
        assert caplog.messages[-1] == "load 2/2: layer 2"
        advance("ready", 2, 2)
    assert caplog.messages == ["load 1/40: weights, MiB", "load 1/2: layer 1", "load 2/2: layer 2"]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("level", [(), ("--log-level", "info")])
def test_a_pipe_gets_progress_only_as_the_log_that_it_asked_for(level: tuple[str, ...], tmp_path: Path) -> None:
    check = (*level, "adapter", "check", "null", "--json")
    command = [sys.executable, "-m", "vllm_probe", *check]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    names = [result["name"] for result in json.loads(ended.stdout)["results"]]
    said = ended.stderr.splitlines()
    assert len([line for line in said if "adapter check 1/" in line and names[0] in line]) == len(level) // 2
    assert level or said == []
