"""Start-up of the `--json` commands beside a two-command typer program, whole processes.

All take turns; the ratio of their medians must be at most 1.6. `python benchmarks/startup.py [TURNS]`.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SCENE, DESCRIPTOR = ROOT / "tests/hosts/ctr-14-no-dri", ROOT / "tests/cli/documents/ascend.json"
BAR = 1.6
HELLO = """
import typer

app = typer.Typer()


@app.command()
def hello(name: str):
    print(f"Hello {name}")


@app.command()
def goodbye(name: str, formal: bool = False):
    print(f"Goodbye {name}")


app()
"""


def commands(folder: Path) -> dict[str, list[str]]:
    hello, probe = folder / "hello.py", [str(Path(sys.executable).with_name("vllm-probe"))]
    hello.write_text(HELLO)
    replay = [*probe, "--replay", str(SCENE)]
    negotiate = ["negotiate", "--model", "Qwen3-Embedding-0.6B", "--capability", str(DESCRIPTOR), "--json"]
    return {
        "typer hello": [sys.executable, str(hello), "hello", "you"],
        "detect --json": [*probe, "detect", "--json"],
        "doctor --json": [*probe, "doctor", "--json"],
        "negotiate --json": [*probe, *negotiate],
        "replay detect --json": [*replay, "detect", "--json"],
        "replay doctor --json": [*replay, "doctor", "--json"],
        "replay negotiate --json": [*replay, *negotiate],
    }


def main() -> None:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    with tempfile.TemporaryDirectory() as folder:
        measured = commands(Path(folder))
        times: dict[str, list[float]] = {name: [] for name in measured}
        environment = os.environ | {"HOME": folder}
        for turn in range(turns + 1):
            for name, command in measured.items():
                begin = time.perf_counter()
                ended = subprocess.run(
                    command, capture_output=True, text=True, cwd=folder, env=environment, check=False
                )
                if ended.returncode > 1:
                    sys.exit(f"{name} failed:\n{ended.stderr}")
                if turn:  # the first fills the caches
                    times[name].append(time.perf_counter() - begin)
    base = statistics.median(times["typer hello"])
    print(f"command                       ms  of hello   (median of {turns}, bar {BAR})")
    for name, seconds in times.items():
        median = statistics.median(seconds)
        print(f"{name:25} {1e3 * median:6.0f}  {median / base:8.2f}  {'over' if median / base > BAR else ''}".rstrip())


if __name__ == "__main__":
    main()
