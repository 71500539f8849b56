"""What each command prints at two widths and as a document: the snapshots are the specification of the text."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.cli.conftest import HOSTS, Cli
from vllm_probe.core.schema import violations

ASCEND, NULL = "ascend.json", "null.json"
ON_ASCEND = ("negotiate", "--model", "Qwen3-Embedding-0.6B", "--capability", ASCEND, "--engine", "vllm")
COMMANDS: dict[str, tuple[str | Path, ...]] = {
    "detect": ("--replay", HOSTS / "cpu-healthy", "detect"),
    "detect-lost-gpu": ("--replay", HOSTS / "ctr-14-no-dri", "detect"),
    "doctor": ("--replay", HOSTS / "ctr-12-no-kfd", "doctor"),
    "doctor-healthy": ("--replay", HOSTS / "cpu-healthy", "doctor"),
    "capability-show": ("capability", "show", NULL),
    "capability-show-1": ("capability", "show", ASCEND),
    "capability-list": ("--replay", HOSTS / "cpu-healthy", "capability", "list"),
    "capability-diff": ("capability", "diff", ASCEND, NULL),
    "negotiate": ("--replay", HOSTS / "cpu-healthy", *ON_ASCEND),
    "negotiate-explain": ("--replay", HOSTS / "cpu-healthy", *ON_ASCEND, "--explain"),
    "negotiate-no": (
        *("--replay", HOSTS / "cpu-healthy", "negotiate", "--model", "GLM-5.3"),
        *("--capability", NULL, "--device-memory", "24GiB"),
    ),
    "adapter": ("adapter", "list"),
}
SCHEMAS = {
    "detect": "inventory",
    "detect-lost-gpu": "inventory",
    "doctor": "doctor",
    "capability-show": "capability",
    "capability-show-1": "capability",
    "negotiate": "runtime",
    "negotiate-no": "runtime",
}


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", COMMANDS)
def test_the_text_for_a_person(cli: Cli, snapshot: SnapshotAssertion, name: str, width: int) -> None:
    ended = cli(*COMMANDS[name], width=width)
    assert str(ended) == snapshot
    assert "\x1b" not in ended.out, "a pipe gets plain text"


@pytest.mark.parametrize("name", ["detect", "doctor", "capability-show-1", "negotiate"])
def test_the_document(cli: Cli, snapshot: SnapshotAssertion, name: str) -> None:
    assert str(cli(*COMMANDS[name], "--json")) == snapshot


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_document_keeps_its_schema(cli: Cli, name: str) -> None:
    assert violations(SCHEMAS[name], cli(*COMMANDS[name], "--json").json()) == ()


@pytest.mark.parametrize("command", ["detect", "negotiate"])
def test_json_prints_what_output_saves(cli: Cli, command: str) -> None:
    ended = cli(*COMMANDS[command], "--json", "--output", "saved.json")
    assert ended.code == 0
    assert Path("saved.json").read_text() == ended.out
    assert Path("saved.json").stat().st_mode & 0o077 == 0


def test_colour_is_for_those_who_want_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    green = "\x1b[32musable"
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert green in cli("detect").out
    assert green not in cli("--no-color", "detect").out
    assert "\x1b[3" not in cli("--no-color", "--help").out


def test_a_pipe_gets_the_steps_of_bench_in_the_log_only(cli: Cli, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        ended = cli("bench", "--device", "null", plugins="null")
    assert "memory read" not in ended.err
    steps = re.findall(r"^bench (\d+)/(\d+): (.+)$", "\n".join(caplog.messages), re.MULTILINE)
    assert {"memory read", "memory copy", "memory triad", "fp32 512 rows"} <= {title for _, _, title in steps}
    assert steps[-1][0] == steps[-1][1]


def test_no_table_is_wider_than_the_terminal(cli: Cli) -> None:
    lines = cli(*COMMANDS["negotiate"], width=80).out.splitlines()
    assert max(map(len, lines)) <= 80


def test_a_command_that_must_be_typed_is_never_cut(cli: Cli) -> None:
    found: list[Any] = cli(*COMMANDS["doctor"], "--json").json()["findings"]
    text = cli(*COMMANDS["doctor"], width=60).out
    commands = [fix["command"] for finding in found for fix in finding["fix"] if fix["command"]]
    assert commands
    assert all(line in text for command in commands for line in command.splitlines())
