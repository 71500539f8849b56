"""The parts of benchmarks/device_check.sh that read and write documents: `pick`, `model` and `serve`."""

import json
import math
import operator
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

START_S, ANSWER_S = 60.0, 20.0
TOKENS = [[11, 7, 5, 3, 2], [11, 7, 5, 3, 2], [900, 800, 700]]
SHAPE = {
    "architectures": ["Qwen3Model"],
    "model_type": "qwen3",
    "torch_dtype": "bfloat16",
    "vocab_size": 2048,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "hidden_act": "silu",
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "tie_word_embeddings": True,
}


def pick(inventory: Path, wanted: str) -> str:
    """Id, vendor and kind of the device called `wanted`, else of the first usable accelerator, else of the CPU."""
    usable = [device for device in json.loads(inventory.read_text())["devices"] if device["usable"]]
    if wanted:
        usable = [device for device in usable if wanted in {device["id"], device["vendor"]}]
    order = {"gpu": 0, "npu": 1, "igpu": 2, "cpu": 3}
    found = sorted(usable, key=lambda device: order.get(device["kind"], 4))[:1]
    return " ".join(f"{device['id']} {device['vendor']} {device['kind']}" for device in found)


def write_model(folder: Path) -> str:
    """A folder with the shape of a small embedding model and no weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(SHAPE, indent=2))
    return str(folder)


def serve(config: Path) -> str:
    """Starts a server, asks for embeddings, and says what came back.

    Raises:
        RuntimeError: it did not start, or an answer is wrong.
    """
    argv = ["vllm-probe", "serve", str(config), "--load-format", "dummy", "--port", "0"]
    log = config.with_name("server.log")
    begin = time.monotonic()
    with log.open("w") as out, subprocess.Popen(argv, stdout=out, stderr=out) as server:
        try:
            address = wait_for(log, server, begin)
            started_s = time.monotonic() - begin
            answer = ask(f"{address}/v1/embeddings", {"input": TOKENS})
        finally:
            server.terminate()
            server.wait(20)
    vectors = [item["embedding"] for item in answer["data"]]
    same, other = (cosine(vectors[0], vectors[i]) for i in (1, 2))
    if len(vectors[0]) != SHAPE["hidden_size"] or not same > 0.999 or not -1.001 < other < 0.999:
        raise RuntimeError(f"wrong answer: {len(vectors[0])} values, cosine {same:g} to itself, {other:g} to another")
    return json.dumps({"started_s": round(started_s, 1), "cosine_same": same, "cosine_other": other}, indent=2)


def wait_for(log: Path, server: subprocess.Popen[bytes], begin: float) -> str:
    """The address that the server says it listens on, once it answers there."""
    while time.monotonic() - begin < START_S and server.poll() is None:
        if found := re.search(r"http://[0-9.:]+", log.read_text()):
            try:
                with urllib.request.urlopen(f"{found[0]}/health", timeout=2):
                    return found[0]
            except OSError:
                pass
        time.sleep(0.2)
    raise RuntimeError(f"the server did not start: {log.read_text()[-400:]}")


def ask(address: str, body: dict[str, object]) -> dict[str, list[dict[str, list[float]]]]:
    """The answer to a POST of `body`."""
    request = urllib.request.Request(
        address, data=json.dumps(body).encode(), headers={"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=ANSWER_S) as response:
        answer: dict[str, list[dict[str, list[float]]]] = json.load(response)
    return answer


def cosine(a: list[float], b: list[float]) -> float:
    """Of the angle between two vectors."""
    return float(sum(map(operator.mul, a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b)))


def main(command: str, *rest: str) -> int:
    """Exit code of one part."""
    try:
        if command == "pick":
            said = pick(Path(rest[0]), rest[1])
        else:
            said = {"model": write_model, "serve": serve}[command](Path(rest[0]))
    except (OSError, RuntimeError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"{said}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
