"""`bench --compare`: what became slower, and what only looks so."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


@pytest.fixture(autouse=True)
def script(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_PROBE_NULL_SCRIPT", "script.json")
    scripted()
    assert cli("bench", "--device", "null", "--only", "memory", "--emit", "old.json", plugins="null").code == 0


def scripted(**values: object) -> None:
    Path("script.json").write_text(json.dumps(values))


def test_the_same_device_is_never_slower_than_itself(cli: Cli) -> None:
    for seed in range(20):
        scripted(noise_pct=4, seed=seed)
        ended = cli("bench", "--device", "null", "--only", "memory", "--compare", "old.json", plugins="null")
        assert ended.code == 0, ended


def test_a_slower_device_is_an_answer_of_no_that_names_the_values(cli: Cli) -> None:
    scripted(bandwidth_gb_s=80)
    command = ("bench", "--device", "null", "--only", "memory", "--compare", "old.json")
    ended = cli(*command, "--emit", "new.json", plugins="null", width=120)
    assert (ended.code, ended.error) == (1, "slower")
    assert "/memory/triad_gb_s" in ended.err
    assert "SLOWER" in ended.out
    assert json.loads(Path("new.json").read_text())["memory"]["read_gb_s"] == pytest.approx(80, rel=0.01)
    printed = cli(*command, "--json", plugins="null")
    assert (printed.code, printed.json()["memory"]["read_gb_s"]) == (1, pytest.approx(80, rel=0.01))


def test_a_faster_device_is_said_to_be(cli: Cli) -> None:
    scripted(bandwidth_gb_s=120)
    ended = cli("bench", "--device", "null", "--only", "memory", "--compare", "old.json", plugins="null", width=120)
    assert ended.code == 0
    assert "FASTER" in ended.out


def test_what_to_compare_with_is_read_before_anything_is_measured(cli: Cli) -> None:
    Path("broken.json").write_text("{")
    for name, error in (
        ("absent.json", "unreadable-file"),
        ("broken.json", "invalid-json"),
        ("nobody", "unknown-name"),
    ):
        ended = cli("bench", "--device", "null", "--compare", name, "--emit", "new.json", plugins="null")
        assert (ended.code, ended.error) == (2, error)
    assert cli("bench", "--device", "all", "--compare", "old.json", plugins="null").error == "bad-usage"
    assert not Path("new.json").exists()


def test_a_baseline_of_another_device_is_said_to_be(cli: Cli) -> None:
    baseline = json.loads(Path("old.json").read_text())
    Path("old.json").write_text(json.dumps(baseline | {"device": baseline["device"] | {"name": "H100"}}))
    command = ("bench", "--device", "null", "--only", "memory", "--compare", "old.json")
    assert "is of another device: H100, this is" in cli(*command, plugins="null").err
