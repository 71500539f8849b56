"""Ten times more requests than the server of a Qwen3-Embedding-0.6B can answer: what is left of its peak goodput?

`vllm-probe serve` runs in a process of its own, with the config that was negotiated for this machine and random
weights. Two kinds of load take turns: closed loop (four clients that wait for their answers), whose rate is the peak,
and open loop at ten times that rate. The goodput under overload must be at least 0.95 of the peak, every answer 200 or
429, every 429 with Retry-After. Requests are bytes made beforehand, because client and server share the machine: what
the client takes is missing in the goodput.
    python benchmarks/overload.py [TURNS]
"""

import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from embed_minilm import server

MODEL = "Qwen3-Embedding-0.6B"
NUM_PROMPTS, NUM_TOKENS = 4, 128
CLIENTS, FACTOR, BAR = 4, 10, 0.95
CLOSED_S, OPEN_S, FILLING_S = 12.0, 24.0, 4.0
QUEUE_STEPS, QUEUE_S = 32, 24.0  # what may wait


class Connection(asyncio.Protocol):
    """A connection that is asked one thing at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps what requests are written to."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def ask(self, request: bytes) -> "asyncio.Future[tuple[int | str, bool]]":
        """The status of the answer, or what happened to it, and whether it says when to come back."""
        self._answer = asyncio.get_running_loop().create_future()
        self._received = bytearray()
        self.transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        """Gives the answer once all of it is there."""
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._received[:end]).lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(self._received) == end + 4 + length:
            self._answer.set_result((int(head[9:12]), b"\r\nretry-after: " in head))

    def connection_lost(self, exc: Exception | None) -> None:
        """Says so where an answer was due."""
        if not self._answer.done():
            self._answer.set_result((f"lost: {exc}", False))


@dataclass
class Load:
    """One run of a kind of load, and what it saw."""

    port: int
    request: bytes
    statuses: Counter[int | str] = field(default_factory=Counter)
    unhelpful: int = 0
    answered_s: list[float] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)
    _idle: list[Connection] = field(default_factory=list)

    async def one(self) -> None:
        """Asks on a connection that is idle, or on a new one."""
        begin = time.perf_counter()
        if self._idle:
            connection = self._idle.pop()
        else:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(Connection, "127.0.0.1", self.port)
        status, helps = await connection.ask(self.request)
        self.statuses[status] += 1
        if status == 200:
            self.answered_s.append(time.perf_counter())
            self.latency_s.append(self.answered_s[-1] - begin)
        self.unhelpful += status == 429 and not helps
        if isinstance(status, int):
            self._idle.append(connection)

    def close(self) -> None:
        """Closes all connections."""
        for connection in self._idle:
            connection.transport.close()

    def rate(self, begin: float, end: float) -> float:
        """Answers per second from the first to the last answer between two times."""
        moments = sorted(moment for moment in self.answered_s if begin <= moment < end)
        return (len(moments) - 1) / (moments[-1] - moments[0])


async def closed(load: Load) -> float:
    """The rate of clients that wait for their answers."""
    begin = time.perf_counter()
    end = begin + CLOSED_S

    async def client() -> None:
        while time.perf_counter() < end:
            await load.one()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    load.close()
    return load.rate(begin, end)


async def overload(load: Load, per_s: float) -> float:
    """The rate of answers while `per_s` requests come each second, from when the queue is full."""
    begin = time.perf_counter()
    end = begin + FILLING_S + OPEN_S
    sent: set[asyncio.Task[None]] = set()
    while (now := time.perf_counter()) < end:
        for _ in range(int((now - begin) * per_s) - len(sent)):
            sent.add(asyncio.create_task(load.one()))
        await asyncio.sleep(0.5 / per_s)
    await asyncio.gather(*sent)
    load.close()
    return load.rate(begin + FILLING_S, end)


def make_request(pick: random.Random) -> bytes:
    prompts = [pick.choices(range(1000, 100_000), k=NUM_TOKENS) for _ in range(NUM_PROMPTS)]
    body = json.dumps({"model": MODEL, "input": prompts, "encoding_format": "base64"}).encode()
    lines = ("POST /v1/embeddings HTTP/1.1", "host: here", "content-type: application/json", "content-length: ")
    return "\r\n".join(lines).encode() + str(len(body)).encode() + b"\r\n\r\n" + body


def main() -> int:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    request = make_request(random.Random(0))
    peaks, ratios, admitted_s, seen, unhelpful = [], [], [], Counter[int | str](), 0
    with tempfile.TemporaryDirectory() as work, server(Path(work), MODEL, "--load-format", "dummy") as url:
        port = int(url.rpartition(":")[2])
        step_tokens = json.loads((Path(work) / "runtime.json").read_text())["max_num_batched_tokens"]
        for _ in range(turns):
            before, during, after = (Load(port, request) for _ in range(3))
            peak = asyncio.run(closed(before))
            left = asyncio.run(overload(during, FACTOR * peak))
            peak = statistics.mean((peak, asyncio.run(closed(after))))
            peaks.append(peak)
            ratios.append(left / peak)
            admitted_s += during.latency_s
            seen += before.statuses + during.statuses + after.statuses
            unhelpful += during.unhelpful
            offered = during.statuses.total() / (FILLING_S + OPEN_S) / peak
            print(f"peak {peak:.1f} requests/s; {offered:.1f} times that: {left:.1f}, {left / peak:.1%}")
    step_s = step_tokens / (statistics.median(peaks) * NUM_PROMPTS * NUM_TOKENS)
    ratio, bound_s = statistics.median(ratios), min(QUEUE_STEPS * step_s, QUEUE_S) + step_s
    p99_s = statistics.quantiles(admitted_s, n=100)[-1]
    print(f"answers: {dict(seen)}, 429 without Retry-After: {unhelpful}")
    print(f"p99 of admitted {p99_s:.2f} s, a full queue takes {bound_s:.2f} s at the peak rate")
    print(f"goodput kept: {ratio:.1%} (bar {BAR:.0%}, load {os.getloadavg()[0]:.1f})")
    return 0 if ratio >= BAR and set(seen) <= {200, 429} and not unhelpful else 1


if __name__ == "__main__":
    sys.exit(main())
