"""`bench --compare`: what became slower, and what only looks so."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from vllm_probe.cli.render.console import as_text
from vllm_probe.cli.render.difference import render
from vllm_probe.vendors.difference import Change, Difference


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
    assert "this run is in new.json" in ended.err
    printed = cli(*command, "--json", plugins="null")
    assert (printed.code, printed.json()["memory"]["read_gb_s"]) == (1, pytest.approx(80, rel=0.01))


def test_a_file_that_was_there_is_replaced_only_where_nothing_is_slower(cli: Cli) -> None:
    before = Path("old.json").read_text()
    command = ("bench", "--device", "null", "--only", "memory", "--compare", "old.json", "--emit", "old.json")
    scripted(bandwidth_gb_s=40)
    ended = cli(*command, plugins="null")
    assert (ended.code, Path("old.json").read_text()) == (1, before)
    assert "old.json stays as it was" in ended.err
    scripted(bandwidth_gb_s=120)
    assert cli(*command, plugins="null").code == 0
    assert json.loads(Path("old.json").read_text())["memory"]["read_gb_s"] == pytest.approx(120, rel=0.01)


def test_a_faster_device_is_said_to_be(cli: Cli) -> None:
    scripted(bandwidth_gb_s=120)
    ended = cli("bench", "--device", "null", "--only", "memory", "--compare", "old.json", plugins="null", width=120)
    assert ended.code == 0
    assert "FASTER" in ended.out


def test_only_what_both_measured_is_listed(cli: Cli) -> None:
    assert cli("bench", "--device", "null", "--emit", "old.json", plugins="null").code == 0
    scripted(bandwidth_gb_s=120)
    ended = cli("bench", "--device", "null", "--only", "memory", "--compare", "old.json", plugins="null", width=120)
    assert ended.code == 0
    listed = [line.split()[0] for line in ended.out.partition("B this run")[2].splitlines() if line.startswith("/")]
    assert "/memory/read_gb_s" in listed
    assert {pointer.split("/")[1] for pointer in listed} == {"memory"}


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


def test_an_ambiguous_value_is_explained_in_a_line_and_ratios_are_figures_like_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    change = Change(pointer="/memory/read_gb_s", old=100, new=137600, ratio=1376, outcome="AMBIGUOUS")
    text = as_text(render(Difference(old="a", new="b", same=0, changes=(change,))))
    assert "137,600" in text
    assert "1,376" in text
    assert len([line for line in text.splitlines() if line.startswith("AMBIGUOUS: further apart than 5 %")]) == 1
    faster = replace(change, outcome="FASTER")
    assert "AMBIGUOUS" not in as_text(render(Difference(old="a", new="b", same=0, changes=(faster,))))
