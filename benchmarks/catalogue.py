"""`negotiate --json` for every model of the catalogue with three descriptors, each in a process of its own.

Bars: 0.5 s, 200 MB, no torch, no numpy, no network, and no exit code but 0 (a config) and 1 (a precise refusal).
Each pair runs twice: once timed, once under `-X importtime`, whose log names every module that was imported.
`python benchmarks/catalogue.py [DESCRIPTOR...]`, descriptors by name or file.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DESCRIPTORS = ("cpu-zen5-2core", "rtx-4090", "ascend-910b3")
WALL_S, RSS_MB = 0.5, 200
FORBIDDEN = {"torch", "numpy", "socket", "_socket", "ssl", "http.client", "urllib.request", "huggingface_hub"}


@dataclass(frozen=True)
class Run:
    """How one command ended and what it took."""

    name: str
    code: int
    verdict: str
    wall_s: float
    cpu_s: float
    rss_mb: float
    forbidden: frozenset[str]


def run(name: str, command: list[str], folder: Path) -> Run:
    environment = os.environ | {"HOME": str(folder), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    out, err = folder / "out.json", folder / "err.txt"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        begin = time.perf_counter()
        child = subprocess.Popen(command, stdout=stdout, stderr=stderr, cwd=folder, env=environment)
        _, status, used = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - begin
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):
        sys.exit(f"{name} ended with {child.returncode}:\n{err.read_text()}")
    verdict = json.loads(out.read_text())["budget"]["verdict"]
    rss_mb = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
    traced = [sys.executable, "-X", "importtime", *command]
    log = subprocess.run(traced, capture_output=True, text=True, cwd=folder, env=environment, check=False).stderr
    imported = set(re.findall(r"^import time:.*\| +(\S+)$", log, re.MULTILINE))
    if "vllm_probe.cli.main" not in imported:
        sys.exit(f"{name} left no log of its imports:\n{log}")
    return Run(
        name, child.returncode, verdict, wall_s, used.ru_utime + used.ru_stime, rss_mb, frozenset(imported & FORBIDDEN)
    )


def main() -> None:
    models = sorted(path.stem for path in (ROOT / "vllm_probe/models/catalogue").glob("*.json"))
    descriptors = sys.argv[1:] or DESCRIPTORS
    program = str(Path(sys.executable).with_name("vllm-probe"))
    runs = []
    with tempfile.TemporaryDirectory() as place:
        run(
            "warm-up",
            [program, "negotiate", "--model", models[0], "--capability", descriptors[0], "--json"],
            Path(place),
        )
        for model in models:
            for descriptor in descriptors:
                options = ["negotiate", "--model", model, "--capability", descriptor, "--json"]
                runs.append(run(f"{model} on {descriptor}", [program, *options], Path(place)))
    refused = [each for each in runs if each.code]
    print(f"{len(models)} models x {len(descriptors)} descriptors ({', '.join(descriptors)}): {len(runs)} runs")
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in Counter(each.verdict for each in runs).items())
    print(f"{len(runs) - len(refused)} ok, {len(refused)} refused: {verdicts}")
    show("wall, ms", [1e3 * each.wall_s for each in runs], [each.name for each in runs], 1e3 * WALL_S)
    show("user + system, ms", [1e3 * each.cpu_s for each in runs], [each.name for each in runs], 1e3 * WALL_S)
    show("resident, MB", [each.rss_mb for each in runs], [each.name for each in runs], RSS_MB)
    imported = sorted({module for each in runs for module in each.forbidden})
    print(f"imported of {', '.join(sorted(FORBIDDEN))}: {', '.join(imported) or 'none'}")


def show(title: str, values: list[float], names: list[str], bar: float) -> None:
    worst = max(values)
    over = sum(value > bar for value in values)
    print(
        f"{title:18} median {statistics.median(values):6.1f}, max {worst:6.1f} ({names[values.index(worst)]}), "
        f"bar {bar:g}: {over or 'none'} over"
    )


if __name__ == "__main__":
    main()
