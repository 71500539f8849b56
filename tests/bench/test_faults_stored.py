"""However a bench ends, the file that it was to write is valid or as it was before."""

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.faulty import GEMM, READ, SCRIPT, Sound, doubted, plan_of, started, value_at
from tests.unit.bench.fake import STAMP
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.store import measure
from vllm_probe.core import codec
from vllm_probe.core.capability import Capability
from vllm_probe.core.document import Stamp
from vllm_probe.core.errors import DeviceHung, DeviceUnavailable, Interrupted, UnwritableOutput
from vllm_probe.core.progress import silent
from vllm_probe.core.schema import violations
from vllm_probe.vendors.null.adapter import NullAdapter


def stored(adapter: NullAdapter, target: Path, plan: BenchPlan, progress: Any = silent) -> Capability:
    adapter.close()
    return measure(adapter, plan, STAMP, target, progress)


def valid(path: Path) -> Capability:
    document = json.loads(path.read_text())
    assert violations("capability", document) == ()
    return codec.from_json(Capability, document)


def test_a_kernel_that_hangs_ends_the_bench_with_what_was_measured(tmp_path: Path) -> None:
    adapter = started(script=replace(SCRIPT, faults={"linear.bf16": "hang"}))
    target = tmp_path / "capability.json"
    target.write_text("before")
    with pytest.raises(DeviceHung, match=r"did not end.*keeps what was measured"):
        stored(adapter, target, plan_of(adapter, stop_s=3.0))
    assert target.read_text() == "before"
    document = valid(tmp_path / "capability.json.partial")
    assert document.measurements[GEMM].status == "error"
    assert "bf16 512 rows did not end" in document.unknown[GEMM]
    doubted(document)


class Unopened(Sound):
    """Is refused by its driver."""

    def _open(self) -> None:
        if hasattr(self, "refuses"):
            raise DeviceUnavailable("null0: no context", hint="see doctor")


def test_a_device_that_cannot_be_opened_leaves_the_file_alone(tmp_path: Path) -> None:
    adapter = started(Unopened)
    plan = plan_of(adapter)
    adapter.refuses = True  # type: ignore[attr-defined]
    target = tmp_path / "capability.json"
    target.write_text("before")
    with pytest.raises(DeviceUnavailable):
        stored(adapter, target, plan)
    assert [path.name for path in tmp_path.iterdir()] == ["capability.json"]
    assert target.read_text() == "before"


class Opening(Sound):
    """Hangs while it is opened."""

    def _open(self) -> None:
        if hasattr(self, "hangs"):
            threading.Event().wait()


def test_a_device_that_hangs_while_it_is_opened(tmp_path: Path) -> None:
    adapter = started(Opening)
    plan = plan_of(adapter, stop_s=0.3)
    adapter.hangs = True  # type: ignore[attr-defined]
    with pytest.raises(DeviceHung, match=r"the opening of the device did not end.*nothing was kept"):
        stored(adapter, tmp_path / "capability.json", plan)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_goes_away(tmp_path: Path) -> None:
    adapter = started()
    folder = tmp_path / "out"
    folder.mkdir()

    def lose(step: str, done: int, total: int) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    with pytest.raises(UnwritableOutput):
        stored(adapter, folder / "capability.json", plan_of(adapter), lose)


def interrupt(step: str, done: int, total: int) -> None:
    """Ctrl-C after two tests."""
    if done == 2:
        raise KeyboardInterrupt


def test_ctrl_c_keeps_what_was_measured_and_the_next_run_goes_on(tmp_path: Path) -> None:
    target = tmp_path / "capability.json"
    first = started()
    with pytest.raises(Interrupted, match="keeps what was measured"):
        stored(first, target, plan_of(first), interrupt)
    partial = valid(tmp_path / "capability.json.partial")
    assert value_at(partial, READ) == pytest.approx(100, rel=0.01)
    assert not target.exists()
    steps: list[str] = []
    again = started()
    stored(again, target, plan_of(again), lambda step, done, total: steps.append(step))
    assert "memory read" not in steps
    assert value_at(valid(target), READ) == pytest.approx(100, rel=0.01)
    assert not (tmp_path / "capability.json.partial").exists()


@pytest.mark.parametrize("text", ["", "{", '{"device_type": "null"}', "\x00" * 100])
def test_a_damaged_partial_document_is_measured_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "capability.json.partial").write_text(text)
    adapter = started()
    stored(adapter, tmp_path / "capability.json", plan_of(adapter))
    assert value_at(valid(tmp_path / "capability.json"), READ) == pytest.approx(100, rel=0.01)


def test_a_partial_document_of_another_machine_is_measured_anew(tmp_path: Path) -> None:
    target = tmp_path / "capability.json"
    first = started(script=replace(SCRIPT, bandwidth_gb_s=50.0))
    with pytest.raises(Interrupted):
        stored(first, target, plan_of(first), interrupt)
    adapter = started()
    adapter.close()
    elsewhere = Stamp(created_at=STAMP.created_at, tool_version=STAMP.tool_version, host_fingerprint="sha256:00")
    measure(adapter, plan_of(adapter), elsewhere, target, silent)
    assert value_at(valid(target), READ) == pytest.approx(100, rel=0.01)
