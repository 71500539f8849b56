"""The script behind `make run`."""

import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "first_run.py"


def test_the_table_of_similarities_has_no_trailing_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    compare = runpy.run_path(str(SCRIPT))["compare"]
    assert compare([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8], [1.0, 0.0], [0.5, 0.5]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["similarity", "(cosine)", "1", "2", "3", "4"]
    assert [line for line in lines if line != line.rstrip()] == []


def test_the_folder_is_named_and_an_interruption_ends_with_a_line_and_130() -> None:
    command = [sys.executable, str(SCRIPT), "--once"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as running:
        assert running.stdout is not None
        said = next(line for line in running.stdout if line.strip())
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does
        rest = running.stdout.read()
    assert said == "the files of this run are in .run/\n"
    assert rest.strip().splitlines()[-1] == "stopped; `make run` begins again"
    assert running.returncode == 130
