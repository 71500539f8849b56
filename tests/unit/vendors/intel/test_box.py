"""A recorded box with an Arc A770, from detect and doctor to a config."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.detect.scenes import ROOT
from vllm_probe.cli.main import main

BOX = ROOT / "tests/hosts/intel-arc-a770"
CARD = "0000:03:00.0"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "VLLM_PROBE_CAPABILITY_PATH", "VLLM_PROBE_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["--replay", str(BOX), *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_card_is_picked_served_by_its_descriptor_and_nothing_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    inventory = said(capsys, "detect")
    card = next(device for device in inventory["devices"] if device["id"] == CARD)
    assert (card["usable"], inventory["picked"]["id"]) == (True, CARD)
    assert card["descriptor"].endswith("arc-a770-16gb.capability.json")
    assert said(capsys, "doctor")["findings"] == []


@pytest.mark.parametrize("engine", ["bundled", "vllm"])
def test_a_config_for_the_card_fits_in_what_is_free_of_it(capsys: pytest.CaptureFixture[str], engine: str) -> None:
    config = said(capsys, "negotiate", "--model", "Qwen3-Embedding-0.6B", "--engine", engine)
    assert (config["device"], config["dtype"]) == (CARD, "bfloat16")
    assert config["budget"]["verdict"] == "boots"
    assert config["budget"]["requested_bytes"] < 15 << 30
    assert config["capability"].endswith("arc-a770-16gb.capability.json")


def test_a_model_larger_than_the_card_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--replay", str(BOX), "negotiate", "--model", "GLM-5.3", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["budget"]["verdict"] == "oom"
