"""Real processes that end early: the file is as before, the partial one valid, and the next run goes on."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from vllm_probe.core import codec
from vllm_probe.core.capability import Capability
from vllm_probe.core.schema import violations

SCRIPT = {"rates_gflops": {"bf16": [[1, 1e6]], "int8": [[1, 500]]}, "launch_us": 2.0, "noise_pct": 0.1}
SECTIONS = {
    "gemm": slice(1),
    "memory": slice(2, 3),
    "copies": slice(4),
    "overlap": slice(3),
    "launch": slice(2),
    "thermal": slice(0),
}
"""Section of the scripted device to those of its tests that are over, with a value, when the process is killed."""

TORCH_SECTIONS = {"weight-only": 1, "primitives": 1, "group-width": 0}
TIMEOUT_S = 250.0
LIMITED = """
import sys
from vllm_probe.bench import plan
from vllm_probe.cli.main import main
plan._STOP_S = 6.0
sys.exit(main(sys.argv[1:]))
"""


@dataclass(frozen=True)
class Place:
    """A folder with a file that a bench is to replace."""

    folder: Path
    device: str
    name: str = "capability.json"

    @property
    def file(self) -> Path:
        return self.folder / self.name

    @property
    def partial(self) -> Path:
        return self.folder / "capability.json.partial"

    def command(self, section: str) -> list[str]:
        return ["--log-level", "info", "bench", "--device", self.device, "--emit", str(self.file), "--only", section]

    def start(
        self, section: str, code: str | None = None, before: Callable[[], None] | None = None
    ) -> subprocess.Popen[str]:
        program = ["-c", code] if code else ["-m", "vllm_probe"]
        own = {
            "HOME": str(self.folder),
            "VLLM_PROBE_PLUGINS": "null,cpu",
            "VLLM_PROBE_NULL_SCRIPT": str(self.folder / "script.json"),
        }
        return subprocess.Popen(
            [sys.executable, *program, *self.command(section)],
            env={key: value for key, value in os.environ.items() if not key.startswith("XDG_")} | own,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=before,  # noqa: PLW1509 - nothing else runs in the tests
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return placed(tmp_path, "null0")


def placed(folder: Path, device: str) -> Place:
    (folder / "script.json").write_text(json.dumps(SCRIPT))
    (folder / "capability.json").write_text("before")
    return Place(folder, device)


def valid(path: Path) -> Capability:
    document = json.loads(path.read_text())
    assert violations("capability", document) == ()
    return codec.from_json(Capability, document)


def begun(stderr: str) -> list[str]:
    """Tests that were begun, by the log: the last of each number, since what is over has a number of its own."""
    return [*dict(re.findall(r"progress: bench (\d+)/\d+: (.+)", stderr)).values()]


def over(stderr: str) -> list[str]:
    """Tests behind which another was begun."""
    return begun(stderr)[:-1]


def end_early(place: Place, section: str, tests: int, how: signal.Signals) -> tuple[int, str]:
    """Exit code and stderr of a bench that gets a signal once so many of its tests are over."""
    process = place.start(section)
    assert process.stderr
    lines: list[str] = []
    while len(over("".join(lines))) < tests:
        lines.append(process.stderr.readline())
        assert lines[-1], lines
    until = time.monotonic() + TIMEOUT_S
    while not place.partial.exists():
        assert time.monotonic() < until
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.005)
    process.send_signal(how)
    rest = process.communicate(timeout=TIMEOUT_S)[1]
    return process.returncode, "".join([*lines, rest])


def goes_on(place: Place, section: str, before: list[str]) -> None:
    """The same command measures what is missing, and nothing twice."""
    process = place.start(section)
    _, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, stderr
    assert valid(place.file).device.id == place.device
    assert not place.partial.exists()
    assert not set(before) & set(begun(stderr))


@pytest.mark.parametrize(("section", "tests"), SECTIONS.items())
def test_killed_in_a_section_of_the_scripted_device(place: Place, section: str, tests: slice) -> None:
    code, stderr = end_early(place, section, tests.stop, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert place.file.read_text() == "before"
    document = valid(place.partial)
    abouts = [about for about in document.measurements.values() if about.samples]
    assert bool(abouts) == bool(tests.stop)
    assert "not run yet" in (*document.unknown.values(), *(each.reason for each in document.measurements.values()))
    goes_on(place, section, over(stderr)[tests])


@pytest.mark.slow
@pytest.mark.parametrize(("section", "tests"), TORCH_SECTIONS.items())
def test_killed_in_a_section_of_the_processors(tmp_path: Path, section: str, tests: int) -> None:
    pytest.importorskip("torch")
    place = placed(tmp_path, "cpu0")
    code, _ = end_early(place, section, tests, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert place.file.read_text() == "before"
    assert "not run yet" in valid(place.partial).unknown.values()
    goes_on(place, section, [])


def test_ctrl_c_says_where_the_partial_document_is(place: Place) -> None:
    code, stderr = end_early(place, "thermal", 0, signal.SIGINT)
    assert code == 130
    assert f"interrupted, {place.partial} keeps what was measured [interrupted]" in stderr
    assert "Traceback" not in stderr
    assert place.file.read_text() == "before"
    valid(place.partial)
    goes_on(place, "thermal", [])


def test_a_kernel_that_never_returns_is_left_with_an_error(place: Place) -> None:
    (place.folder / "script.json").write_text(json.dumps(SCRIPT | {"faults": {"linear.bf16": "hang"}}))
    process = place.start("gemm", code=LIMITED)
    _, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 3
    assert "bf16 512 rows did not end: bench was given up after 6 s" in stderr
    assert stderr.splitlines()[-2].endswith("[device-hung]")
    assert place.file.read_text() == "before"
    document = valid(place.partial)
    assert document.measurements["/compute_units/bf16/throughput_gflops"].status == "error"


def test_a_full_disk_is_an_error_and_leaves_nothing_half_written(place: Place) -> None:
    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    process = place.start("memory", before=fill)
    _, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 2, stderr
    assert stderr.splitlines()[-2].endswith("[unwritable-output]")
    assert place.file.read_text() == "before"
    assert not [path.name for path in place.folder.iterdir() if path.name.startswith(".capability")]


def test_a_folder_that_cannot_be_written_is_an_error_before_anything_is_measured(place: Place) -> None:
    process = Place(place.folder, "null0", "absent/capability.json").start("memory")
    _, stderr = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 2
    assert stderr.splitlines()[-2].endswith("[unwritable-output]")
    assert begun(stderr) == []
