"""`make run`: detects, measures, negotiates and serves a real model, and sends it sentences.

With `--once` it stops after the answer. Documents are written to `.run/`, and Ctrl-C ends it with 130.
"""

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

MODEL = "all-MiniLM-L6-v2"
FOLDER = Path(__file__).resolve().parent.parent / ".run"
RELATED = (0, 3)
SENTENCES = (
    "The cat is asleep on the warm windowsill.",
    "The central bank raised its rates again.",
    "How long does sourdough bread have to rise?",
    "A kitten naps in the sunshine by the window.",
    "Graphics cards are sold out everywhere.",
)
START_S = 120.0
INTERRUPTED = 130


def say(text: str) -> None:
    """Prints a line that stands out between those of the commands."""
    line = f"\033[1;36m{text}\033[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text
    sys.stdout.write(f"\n{line}\n\n")
    sys.stdout.flush()


def probe(*arguments: str) -> list[str]:
    """The command line of `vllm-probe` with `arguments`, announced."""
    say(f"$ vllm-probe {' '.join(arguments)}")
    return [sys.executable, "-m", "vllm_probe", *arguments]


def free_port(preferred: int = 8000) -> int:
    """`preferred`, or another port where that one is taken."""
    for port in (preferred, 0):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(trial.getsockname()[1])
    return preferred


def await_health(url: str, server: "subprocess.Popen[bytes]") -> None:
    """Returns once the server accepts requests; exits with its code when it ends instead."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            sys.exit(server.returncode or 1)
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    sys.exit(f"the server was not ready after {START_S:.0f} s")


def embed(url: str) -> list[list[float]]:
    """Unit vectors of the sentences."""
    body = json.dumps({"model": MODEL, "input": SENTENCES}).encode()
    request = urllib.request.Request(f"{url}/v1/embeddings", body, {"Content-Type": "application/json"})
    begin = time.monotonic()
    with urllib.request.urlopen(request, timeout=60) as answer:
        reply = json.load(answer)
    seconds = time.monotonic() - begin
    vectors = [row["embedding"] for row in reply["data"]]
    tokens = reply["usage"]["prompt_tokens"]
    say(f"{len(vectors)} sentences, {tokens} tokens, vectors of {len(vectors[0])} numbers, {1e3 * seconds:.0f} ms")
    return [[value / math.hypot(*vector) for value in vector] for vector in vectors]


def compare(vectors: list[list[float]]) -> bool:
    """Prints how similar the sentences are; whether the related pair is the most similar."""
    pairs = {(i, j): sum(map(float.__mul__, vectors[i], vectors[j])) for j in range(len(vectors)) for i in range(j)}
    closest = max(pairs, key=pairs.__getitem__)
    width = max(map(len, SENTENCES))
    heads = "".join(f"{number:6} " for number in range(1, len(vectors)))
    lines = [f"{'similarity (cosine)':{width + 2}}{heads}"]
    for j, sentence in enumerate(SENTENCES):
        row = "".join(f"{pairs[i, j]:6.2f}{'*' if (i, j) == closest else ' '}" for i in range(j))
        lines.append(f"{j + 1} {sentence:{width}}{row}")
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in lines))
    first, second = (SENTENCES[index] for index in closest)
    sys.stdout.write(f"\n* most alike: {first!r} and {second!r}\n")
    return closest == RELATED


def main() -> int:
    """Exit status: 0 when the related sentences came out as the most similar."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    FOLDER.mkdir(exist_ok=True)
    os.chdir(FOLDER)
    say(f"the files of this run are in {FOLDER.name}/")
    for arguments in (
        ("detect",),
        ("bench", "--quick", "--emit", "capability.json"),
        ("negotiate", "--model", MODEL),
    ):
        code = subprocess.run(probe(*arguments), check=False).returncode
        if code:
            return code
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(probe("serve", "--port", str(port)), start_new_session=True) as server:
        try:
            await_health(url, server)
            alike = compare(embed(url))
            if "--once" not in sys.argv:
                say(f"the server stays up at {url} until Ctrl-C; try the curl line above")
                server.wait()
        finally:
            server.send_signal(signal.SIGTERM)
    return 0 if alike else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        say("stopped; `make run` begins again")
        sys.exit(INTERRUPTED)
