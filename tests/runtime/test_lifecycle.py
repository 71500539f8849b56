"""A real server in a process of its own: the official client, signals, ports."""

import asyncio
import base64
import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.runtime.support import wait_until
from vllm_probe.core.errors import BadUsage, PortInUse
from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.server.app import ServerOptions, serve
from vllm_probe.runtime.server.lifecycle import bind

ROOT = Path(__file__).parents[2]
TEXTS = ["the river is cold", "rain falls on stone", "a"]


@contextmanager
def server(folder: Path, seconds_per_step: float = 0.0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    argv = [sys.executable, "-m", "tests.runtime.server_process", str(folder), str(seconds_per_step)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:")
            yield process, url
        finally:
            process.kill()


@pytest.fixture(scope="module")
def url(tiny: Path) -> Iterator[str]:
    with server(tiny) as (_, address):
        yield address


def status_of(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=20) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def embed(url: str, given: Any) -> tuple[int, Any]:
    body = json.dumps({"input": given}).encode()
    question = urllib.request.Request(f"{url}/v1/embeddings", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(question, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def gauge(url: str, name: str) -> float:
    with urllib.request.urlopen(f"{url}/metrics", timeout=20) as response:
        (line,) = (line for line in response.read().decode().splitlines() if line.startswith(f"{name}{{"))
    return float(line.rpartition(" ")[2])


def open_requests(url: str) -> float:
    """Requests that wait or run."""
    return gauge(url, "vllm:num_requests_waiting") + gauge(url, "vllm:num_requests_running")


def test_the_official_client_gets_the_vectors(url: str, tiny_engine: Engine) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        by_default = client.embeddings.create(model="tiny", input=TEXTS)
        floats = client.embeddings.create(model="tiny", input=TEXTS, encoding_format="float")
        packed = client.embeddings.create(model="tiny", input=TEXTS, encoding_format="base64")
        assert [model.id for model in client.models.list()] == ["tiny", "alias"]
    wanted = tiny_engine.embed(TEXTS).vectors.tolist()
    assert [item.embedding for item in by_default.data] == wanted
    assert [item.embedding for item in floats.data] == wanted
    assert len(base64.b64decode(str(packed.data[0].embedding))) == 4 * 32
    assert by_default.usage.prompt_tokens == 15


def test_the_official_client_works_asynchronously(url: str, tiny_engine: Engine) -> None:
    async def ask() -> list[list[float]]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
            asked = [client.embeddings.create(model="alias", input=text) for text in TEXTS]
            return [answer.data[0].embedding for answer in await asyncio.gather(*asked)]

    wanted = tiny_engine.embed(TEXTS).vectors
    for found, row in zip(asyncio.run(ask()), wanted, strict=True):
        assert found == pytest.approx(row.tolist(), abs=1e-6)


def test_the_official_client_reads_headers_and_extra_fields(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        raw = client.embeddings.with_raw_response.create(
            model="tiny",
            input="a " * 80,
            extra_body={"truncate_prompt_tokens": -1},
            extra_headers={"X-Request-Id": "7"},
        )
    assert raw.headers["x-truncated-inputs"] == "1"
    assert raw.headers["x-request-id"] == "7"
    assert raw.parse().usage.prompt_tokens == 64


def test_the_official_client_maps_errors(url: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError, match="input 0 is empty") as refused:
            client.embeddings.create(model="tiny", input="")
        assert refused.value.param == "input"
        with pytest.raises(openai.NotFoundError):
            client.embeddings.create(model="gpt", input="a")


def test_sigterm_answers_what_was_admitted_and_exits_0(tiny: Path) -> None:
    with server(tiny, seconds_per_step=0.15) as (process, url):
        answers: list[tuple[int, Any]] = []
        clients = [threading.Thread(target=lambda: answers.append(embed(url, [[4] * 60] * 4))) for _ in range(3)]
        for client in clients:
            client.start()
        wait_until(lambda: open_requests(url) == 3)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: status_of(f"{url}/health") == 503)
        assert status_of(f"{url}/live") == 200
        assert embed(url, "a")[0] == 503
        for client in clients:
            client.join()
        assert [status for status, _ in answers] == [200, 200, 200]
        assert all(len(body["data"]) == 4 for _, body in answers)
        assert process.wait(20) == 0


def test_a_second_signal_aborts(tiny: Path) -> None:
    with server(tiny, seconds_per_step=0.5) as (process, url):
        answers: list[tuple[int, Any]] = []
        client = threading.Thread(target=lambda: answers.append(embed(url, [[4] * 60] * 60)))
        client.start()
        wait_until(lambda: open_requests(url) == 1)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: status_of(f"{url}/health") == 503)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert time.monotonic() - began < 10  # all of it would take 15 s
        client.join()
        assert [(status, body["error"]["message"]) for status, body in answers] == [(503, "the engine was closed")]


def test_an_idle_server_exits_on_ctrl_c(tiny: Path) -> None:
    with server(tiny) as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


def test_a_taken_port_is_known_before_anything_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=f"127.0.0.1:{port} is in use"):
            bind("127.0.0.1", port)


def test_a_port_taken_meanwhile_is_said_too(tiny_engine: Engine) -> None:
    first = bind("127.0.0.1", 0)
    port = first.getsockname()[1]
    with bind("127.0.0.1", port) as second, first:
        first.listen()
        with pytest.raises(PortInUse):
            serve(tiny_engine, ServerOptions(), second)


@pytest.mark.parametrize(("host", "port"), [("no.such.host.invalid", 80), ("203.0.113.1", 8000), ("127.0.0.1", 70000)])
def test_an_address_that_is_not_ours_is_refused(host: str, port: int) -> None:
    with pytest.raises(BadUsage, match=f"cannot listen on {host}:{port}"):
        bind(host, port)
