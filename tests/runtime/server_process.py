"""A checkpoint served in a process of its own: python -m tests.runtime.server_process FOLDER [OPTIONS]."""

import argparse
import json
import math
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

import torch

from tests.runtime.support import FaultyAdapter, load_engine
from vllm_probe.runtime.server.app import ServerOptions, serve

ROOT = Path(__file__).parents[2]


class SlowAdapter(FaultyAdapter):
    """A CPU that takes its time."""

    delay_s = 0.0

    def attention(self, *tensors: Any, **options: Any) -> torch.Tensor:
        time.sleep(self.delay_s)
        return super().attention(*tensors, **options)


@contextmanager
def server(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process and its base URL."""
    argv = [sys.executable, "-m", "tests.runtime.server_process", str(folder), *options]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("http://127.0.0.1:")
            yield process, url
        finally:
            process.kill()


def hold(process: subprocess.Popen[str]) -> None:
    """From now on the server computes nothing."""
    _tell(process, "hold\n")


def release(process: subprocess.Popen[str]) -> None:
    """The server computes again."""
    _tell(process, "release\n")


def _tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line)
    process.stdin.flush()
    assert process.stdout.readline() == line


def status_of(url: str) -> int:
    """Status of a GET."""
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def embed(url: str, given: Any) -> tuple[int, Any]:
    """Status and answer of an embeddings request."""
    body = json.dumps({"input": given}).encode()
    question = urllib.request.Request(f"{url}/v1/embeddings", body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(question, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def metric(url: str, *names: str, key: str = "none") -> float:
    """Sum of metrics over their labels."""
    question = urllib.request.Request(f"{url}/metrics", headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(question, timeout=60) as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.partition("{")[0] in names)


def open_requests(url: str) -> int:
    """Requests that were admitted and wait or run."""
    return int(metric(url, "vllm:num_requests_waiting", "vllm:num_requests_running"))


def obey(adapter: FaultyAdapter) -> None:
    """Holds and releases the computing as the lines of stdin say, each of which is answered by itself."""
    with open(0, "rb", buffering=0) as lines:
        for line in lines:
            (adapter.gate.clear if line == b"hold\n" else adapter.gate.set)()
            sys.stdout.write(line.decode())
            sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds per layer")
    parser.add_argument("--queue", type=int, help="tokens that may wait")
    parser.add_argument("--drain", type=float, default=600.0, help="seconds after SIGTERM")
    parser.add_argument("--api-key")
    given = parser.parse_args()
    adapter = SlowAdapter()
    engine = load_engine(given.folder, adapter, queue=given.queue, max_num_batched_tokens=256)
    engine.stall_s = math.inf
    adapter.delay_s = given.delay
    threading.Thread(target=obey, args=(adapter,), daemon=True).start()
    options = ServerOptions(
        port=0, api_key=given.api_key, served_model_names=("tiny", "alias"), drain_timeout_s=given.drain
    )
    code = serve(engine, options, on_ready=lambda url, _: print(url, flush=True))  # noqa: T201
    engine.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
