"""What fails around the tests of a bench costs no value, and what ends the process is known the next time."""

import json
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.bench.faulty import GEMM, READ, Sound, plan_of, started, value_at
from tests.bench.test_faults_stored import stored, valid
from vllm_probe.core.errors import Interrupted
from vllm_probe.core.primitive import MemoryReading, Telemetry
from vllm_probe.vendors.null.adapter import NullTensor


class Around(Sound):
    """Fails where `fault` says, once it is armed."""

    fault = ""
    clock_mhz: float | None = None

    def _fail(self, name: str) -> None:
        if self.fault == name:
            raise RuntimeError(f"driver: no {name}")

    def _close(self) -> None:
        if self.fault == "return":
            threading.Event().wait()
        self._fail("close")
        super()._close()

    def _release(self, tensor: NullTensor) -> None:
        self._fail("release")
        super()._release(tensor)

    def _memory(self) -> MemoryReading:
        self._fail("memory")
        return super()._memory()

    def software(self) -> dict[str, str]:
        self._fail("software")
        return super().software()

    def _telemetry(self) -> Telemetry:
        return Telemetry(clock_mhz=self.clock_mhz) if self.clock_mhz is not None else super()._telemetry()


def around(fault: str = "", clock_mhz: float | None = None) -> tuple[Around, Any]:
    adapter = started(Around)
    assert isinstance(adapter, Around)
    plan = plan_of(adapter)
    adapter.close()
    adapter.fault, adapter.clock_mhz = fault, clock_mhz
    return adapter, plan


@pytest.mark.parametrize("fault", ["close", "return", "memory", "software"])
def test_a_fault_outside_the_tests_costs_no_value(tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("vllm_probe.bench.store"), "_GRACE_S", 0.2)
    adapter, plan = around(fault)
    target = tmp_path / "capability.json"
    stored(adapter, target, plan)
    assert value_at(valid(target), GEMM) == pytest.approx(200.0)
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


@pytest.mark.parametrize("clock_mhz", [float("nan"), -1.0, 1e9])
def test_a_clock_that_is_none_is_unknown(tmp_path: Path, clock_mhz: float) -> None:
    adapter, plan = around(clock_mhz=clock_mhz)
    stored(adapter, tmp_path / "capability.json", plan)
    about = valid(tmp_path / "capability.json").measurements[GEMM]
    assert (about.clock_mhz, about.status, about.verdict) == (None, "measured", "normal")


class Leaving(Sound):
    """Calls `leave` when it reads a large array."""

    leave: Callable[[], None] | None = None

    def _read(self, source: NullTensor) -> NullTensor:
        if self.leave:
            self.leave()
        return super()._read(source)


def leaving(leave: Callable[[], None]) -> tuple[Leaving, Any]:
    adapter = started(Leaving)
    assert isinstance(adapter, Leaving)
    plan = plan_of(adapter)
    adapter.close()
    adapter.leave = leave
    return adapter, plan


def test_a_kernel_that_calls_exit_is_one_failed_test(tmp_path: Path) -> None:
    adapter, plan = leaving(lambda: sys.exit(0))
    stored(adapter, tmp_path / "capability.json", plan)
    document = valid(tmp_path / "capability.json")
    assert document.measurements[READ].status == "error"
    assert value_at(document, GEMM) == pytest.approx(200.0)


def test_a_test_in_which_the_process_ended_twice_is_passed_by(tmp_path: Path) -> None:
    target, trail = tmp_path / "capability.json", tmp_path / "capability.json.partial.trail"
    seen: list[str] = []

    def interrupted() -> None:
        seen.append(trail.read_text())
        raise KeyboardInterrupt

    adapter, plan = leaving(interrupted)
    with pytest.raises(Interrupted):
        stored(adapter, target, plan)
    assert seen == ["memory read\n"]
    assert not trail.exists()  # Ctrl-C is no fault of the test
    for lines, status in (("memory read\n", "measured"), ("memory read\nmemory read\n", "error")):
        copy = tmp_path / "capability.json.partial"
        kept = copy.read_text()
        trail.write_text(lines)
        trail.chmod(0o600)
        adapter, plan = leaving(lambda: None)
        stored(adapter, target, plan)
        assert valid(target).measurements[READ].status == status
        assert not trail.exists()
        copy.write_text(kept)
        copy.chmod(0o600)


class Hasty(Sound):
    """Ctrl-C while it is opened."""

    def _open(self) -> None:
        if hasattr(self, "hurried"):
            raise KeyboardInterrupt


@pytest.fixture
def twice_ended(tmp_path: Path) -> Path:
    """The file of a bench whose reading of memory ended the process twice."""
    target = tmp_path / "capability.json"
    adapter, plan = leaving(lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(Interrupted):
        stored(adapter, target, plan)
    trail = tmp_path / "capability.json.partial.trail"
    trail.write_text("memory read\n" * 2)
    trail.chmod(0o600)
    return target


@pytest.mark.parametrize("change", [{"tool_version": "0.0.1"}, {"created_at": "2020-01-01T00:00:00Z"}])
def test_what_ended_another_release_or_an_earlier_day_gets_its_turn(twice_ended: Path, change: dict[str, str]) -> None:
    partial = twice_ended.with_name("capability.json.partial")
    partial.write_text(json.dumps(json.loads(partial.read_text()) | change))
    adapter, plan = leaving(lambda: None)
    stored(adapter, twice_ended, plan)
    assert valid(twice_ended).measurements[READ].status == "measured"


def test_ctrl_c_before_the_first_test_forgets_none_that_ended_the_process(twice_ended: Path) -> None:
    adapter = started(Hasty)
    plan = plan_of(adapter)
    adapter.hurried = True  # type: ignore[attr-defined]
    with pytest.raises(Interrupted):
        stored(adapter, twice_ended, plan)
    adapter, plan = leaving(lambda: None)
    stored(adapter, twice_ended, plan)
    assert valid(twice_ended).measurements[READ].status == "error"


def test_a_partial_document_that_others_could_write_is_not_taken_up(tmp_path: Path) -> None:
    target, partial = tmp_path / "capability.json", tmp_path / "capability.json.partial"
    adapter, plan = leaving(lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(Interrupted):
        stored(adapter, target, plan)
    partial.write_text(partial.read_text())
    partial.chmod(0o666)
    steps: list[str] = []
    adapter, plan = leaving(lambda: None)
    stored(adapter, target, plan, lambda step, _done, _total: steps.append(step))
    assert valid(target).measurements[READ].status == "measured"
    assert not partial.exists()
