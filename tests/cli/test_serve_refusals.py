"""What `serve` cannot serve is refused at once, for the reason that counts, with and without `--dry-run`."""

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.unit.models.folders import minilm

BOTH = pytest.mark.parametrize("options", [("--dry-run",), ("--port", "0")], ids=["shown", "run"])


@BOTH
def test_a_config_for_a_device_that_is_not_here_is_not_waited_for(cli: Cli, options: tuple[str, ...]) -> None:
    assert cli("negotiate", "Qwen3-8B", "--capability", "h100-sxm-80gb", "--engine", "vllm").code == 0
    for engine in ((), ("--engine", "vllm")):
        ended = cli("serve", *engine, *options)
        assert (ended.code, ended.error) == (3, "device-not-found")
        assert "error: the config is for nvidia (h100-sxm-80gb), which is not here" in ended.err
        assert "`vllm-probe negotiate Qwen/Qwen3-8B --engine vllm` plans for what is here" in ended.err


@BOTH
def test_a_config_of_the_bundled_runtime_for_another_device_does_not_run_on_this_one(
    cli: Cli, options: tuple[str, ...]
) -> None:
    assert cli("negotiate", "Qwen3-Embedding-0.6B", "--capability", "h100-sxm-80gb").code == 0
    ended = cli("serve", "--load-format", "dummy", *options)
    assert (ended.code, ended.error) == (3, "device-not-found")


@BOTH
@pytest.mark.parametrize("model", ["Qwen3-8B", "gpt-oss-20b"])
def test_what_the_bundled_runtime_cannot_run_is_refused_before_its_weights_are_asked_for(
    cli: Cli, model: str, options: tuple[str, ...]
) -> None:
    assert cli("negotiate", model, "--capability", "cpu.json").code == 0
    for source in ((), (model,)):
        ended = cli("serve", *source, *options)
        assert (ended.code, ended.error) == (3, "unsupported-model")
        assert "needs --engine vllm" in ended.err
        assert "hf download" not in ended.err
    assert f"`vllm-probe serve {model} --engine vllm`" in ended.err


@pytest.mark.parametrize("package", ["torch", "fastapi"])
def test_a_missing_package_is_named_by_negotiate_and_both_forms_of_serve(
    cli: Cli, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("negotiate", "Qwen3-Embedding-0.6B", "--capability", "cpu.json")
    Path("capability.json").write_text(Path("cpu.json").read_text())
    assert cli(*asked).code == 0
    monkeypatch.setitem(sys.modules, package, None)
    said = f"the Python package '{package}' is not installed"
    assert f"this machine cannot serve it: {said}; `pip install" in cli(*asked).err
    for options in (("--dry-run",), ("--port", "0")):
        ended = cli("serve", "--load-format", "dummy", *options)
        assert (ended.code, ended.error) == (3, "missing-extra")
        assert f"error: {said} [" in ended.err


def test_a_folder_without_weights_is_said_to_lack_them_and_is_not_asked_for_again(cli: Cli) -> None:
    Path("bare").mkdir()
    Path("bare/config.json").write_text(json.dumps(minilm()["config.json"]))
    Path("capability.json").write_text(Path("cpu.json").read_text())
    said = "has a config.json and no weights"
    assert f"this machine cannot serve it: the folder {Path('bare').resolve()} {said}" in cli("negotiate", "./bare").err
    for source in (("./bare",), ()):
        for options in (("--dry-run",), ("--port", "0")):
            ended = cli("serve", *source, *options)
            assert (ended.code, ended.error) == (3, "weights-unavailable")
            assert said in ended.err
            assert "give the folder" not in ended.err
    assert cli("serve", "./bare", "--dry-run", "--load-format", "dummy").code == 0
