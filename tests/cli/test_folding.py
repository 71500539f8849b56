"""What is said on a terminal is folded at its width; commands are not, and neither is anything in a pipe."""

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.conftest import Cli
from vllm_probe.cli import streams

ASKED = ("negotiate", "GLM-5.3", "--capability", "rtx-4090", "--engine", "vllm")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has stderr pass for a terminal of 60 columns."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")


def test_prose_is_folded_between_words(terminal: None) -> None:
    text = "error: " + "word " * 40 + "[code]"
    lines = streams.fold(text).splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= 60
    assert min(map(len, lines[:-1])) > 50
    assert " ".join(line.strip() for line in lines) == text


@pytest.mark.parametrize(
    "command",
    [
        "`vllm-probe negotiate a-model --max-model-len 4096 --capability a-descriptor --engine vllm`",
        "OMP_NUM_THREADS=2 vllm serve some/model --config a-file-with-a-long-name.yaml --tokenizer ORIGINAL",
        "pip install -e '/a/folder/whose name has spaces/and is longer than the terminal[runtime]'",
    ],
)
def test_a_command_is_never_broken(terminal: None, command: str) -> None:
    folded = streams.fold(f"hint: {'some words before it ' * 3}{command}, or something else that is {'long ' * 20}")
    assert any(command in line for line in folded.splitlines())
    assert len(folded.splitlines()) > 3


def test_a_line_that_is_a_command_stays_one(terminal: None) -> None:
    command = (
        'VLLM_X=1 vllm serve a/model --runner pooling --pooler-config \'{"a": 1, "b": 2}\' ' + "--option value " * 9
    )
    assert streams.fold(f"next:\n{command}") == f"next:\n{command}"


def test_a_refusal_is_folded_on_a_terminal_and_two_lines_in_a_pipe(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    piped = cli(*ASKED)
    assert len(piped.err.splitlines()) == 2
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    folded = cli(*ASKED)
    assert len(folded.err.splitlines()) > 3
    assert folded.err.split() == piped.err.split()
    for command in re.findall("`[^`]+`", piped.err):
        assert command in folded.err


@given(st.text("ab` \t,;()", max_size=200))
def test_no_word_is_lost(text: str) -> None:
    assert "".join("".join(streams._lines(text, 20)).split()) == "".join(text.split())
