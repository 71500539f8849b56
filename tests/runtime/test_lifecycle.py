"""A real server in a process of its own: signals, clients that go away, ports."""

import http.client
import json
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.server_process import embed, hold, metric, open_requests, release, server, status_of
from tests.runtime.support import Load, wait_until
from vllm_probe.core.errors import BadUsage, PortInUse
from vllm_probe.runtime.engine import Engine
from vllm_probe.runtime.server.app import ServerOptions, serve
from vllm_probe.runtime.server.lifecycle import bind


def ask_until_refused(url: str, seen: list[Any]) -> None:
    """Asks over one connection as long as that stays open, then over the next, and notes what comes.

    A new connection may be reset as well as refused: when a listener closes, the kernel resets those that it has made
    since the last was accepted, and nobody can be quicker than that.
    """
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    body = json.dumps({"input": [[4] * 20] * 2})
    while True:
        is_new = connection.sock is None
        try:
            connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
            with connection.getresponse() as response:
                response.read()
                seen.append(response.status)
        except ConnectionRefusedError:
            return
        except (OSError, http.client.HTTPException) as error:
            if not (is_new and type(error) in (ConnectionResetError, BrokenPipeError)):
                seen.append(repr(error))
            return


def test_sigterm_answers_what_was_admitted_and_exits_0(tiny: Path) -> None:
    with server(tiny) as (process, url):
        hold(process)
        answers: list[tuple[int, Any]] = []
        clients = [threading.Thread(target=lambda: answers.append(embed(url, [[4] * 60] * 4))) for _ in range(3)]
        for client in clients:
            client.start()
        wait_until(lambda: open_requests(url) == 3)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: status_of(f"{url}/health") == 503)
        assert status_of(f"{url}/live") == 200
        assert embed(url, "a")[0] == 503
        release(process)
        for client in clients:
            client.join()
        assert [status for status, _ in answers] == [200, 200, 200]
        assert all(len(body["data"]) == 4 for _, body in answers)
        assert process.wait(60) == 0


def test_under_load_sigterm_leaves_no_request_without_an_answer(tiny: Path) -> None:
    with server(tiny, "--delay", "0.01") as (process, url):
        seen: list[list[Any]] = [[] for _ in range(12)]
        clients = [threading.Thread(target=ask_until_refused, args=(url, answers)) for answers in seen]
        for client in clients:
            client.start()
        wait_until(lambda: all(len(answers) > 2 for answers in seen))
        process.send_signal(signal.SIGTERM)
        for client in clients:
            client.join()
        assert process.wait(60) == 0
    for answers in seen:
        assert set(answers) <= {200, 503}
        assert answers == sorted(answers)  # nothing is admitted after the first refusal


def test_a_connection_that_waits_to_be_accepted_at_the_end_is_answered(load: Load) -> None:
    engine, _ = load()
    clients: list[socket.socket] = []

    def connect_and_end(url: str, _reads_text: bool) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        clients.append(socket.create_connection((host, int(port)), 30))
        clients[0].sendall(b"GET /live HTTP/1.1\r\nhost: here\r\n\r\n")
        signal.raise_signal(signal.SIGTERM)

    assert serve(engine, ServerOptions(port=0), on_ready=connect_and_end) == 0
    with clients[0] as client:
        assert client.recv(1000).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_client_that_hangs_up_leaves_the_queue(tiny: Path) -> None:
    with server(tiny) as (process, url):
        hold(process)
        answers: list[tuple[int, Any]] = []
        client = threading.Thread(target=lambda: answers.append(embed(url, [[4] * 60] * 20)))
        client.start()
        wait_until(lambda: open_requests(url) == 1)
        host, _, port = url.removeprefix("http://").partition(":")
        body = json.dumps({"input": [[5] * 60] * 4}).encode()
        with socket.create_connection((host, int(port))) as gone:
            gone.sendall(b"POST /v1/embeddings HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            wait_until(lambda: open_requests(url) == 2)
        wait_until(lambda: metric(url, "probe:request_failures_total") == 1)
        release(process)
        client.join()
        assert [status for status, _ in answers] == [200]
        assert embed(url, "a")[0] == 200
        assert metric(url, "vllm:prompt_tokens_total") == 20 * 60 + 3  # and none of the 240 of the one that left


def test_what_cannot_be_answered_in_time_is_503_and_the_exit_code_says_so(tiny: Path, capfd: Any) -> None:
    with server(tiny, "--drain", "1") as (process, url):
        hold(process)
        answers: list[tuple[int, Any]] = []
        client = threading.Thread(target=lambda: answers.append(embed(url, [[4] * 60] * 60)))
        client.start()
        wait_until(lambda: open_requests(url) == 1)
        process.send_signal(signal.SIGTERM)
        client.join()
        release(process)
        assert process.wait(60) == 1
    assert [(status, body["error"]["message"]) for status, body in answers] == [(503, "the engine was closed")]
    assert "Traceback" not in capfd.readouterr().err


def test_a_request_larger_than_the_queue_is_answered_after_sigterm(tiny: Path) -> None:
    with server(tiny, "--queue", "300") as (process, url):
        hold(process)
        answers: list[tuple[int, Any]] = []
        clients = [threading.Thread(target=lambda n=n: answers.append(embed(url, [[4] * 60] * n))) for n in (40, 1)]
        for number, client in enumerate(clients, 1):
            client.start()
            wait_until(lambda number=number: open_requests(url) == number)  # type: ignore[misc]  # bound for this turn
        process.send_signal(signal.SIGTERM)
        release(process)
        assert process.wait(60) == 0
        for client in clients:
            client.join()
    assert sorted((status, len(body["data"])) for status, body in answers) == [(200, 1), (200, 40)]


def test_a_second_signal_aborts(tiny: Path) -> None:
    with server(tiny) as (process, url):
        hold(process)
        answers: list[tuple[int, Any]] = []
        client = threading.Thread(target=lambda: answers.append(embed(url, [[4] * 60] * 60)))
        client.start()
        wait_until(lambda: open_requests(url) == 1)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: status_of(f"{url}/health") == 503)
        process.send_signal(signal.SIGINT)
        client.join()  # before anything was computed
        release(process)
        assert process.wait(60) == 130
        assert [(status, body["error"]["message"]) for status, body in answers] == [(503, "the engine was closed")]


def test_a_client_that_sends_far_too_much_gets_its_answer(tiny: Path) -> None:
    with server(tiny) as (_, url):
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
        for _ in range(3):  # over the same connection
            connection.request("POST", "/v1/embeddings", b"a" * (20 << 20))
            with connection.getresponse() as response:
                assert response.status == 413
                response.read()
        connection.close()


def test_an_idle_server_exits_on_ctrl_c(tiny: Path) -> None:
    with server(tiny) as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


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
