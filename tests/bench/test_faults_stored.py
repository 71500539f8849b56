"""However a bench ends, the file that it was to write is valid or as it was before."""

import _thread
import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.faulty import GEMM, MIB, READ, SCRIPT, TRIAD, Sound, doubted, plan_of, started, value_at
from tests.unit.bench.fake import STAMP
from vllm_probe.bench.plan import BenchPlan
from vllm_probe.bench.run import run_bench
from vllm_probe.bench.store import measure
from vllm_probe.core import codec
from vllm_probe.core.capability import Capability
from vllm_probe.core.document import Stamp
from vllm_probe.core.errors import DeviceHung, DeviceUnavailable, Interrupted, UnwritableOutput
from vllm_probe.core.primitive import Event
from vllm_probe.core.progress import silent
from vllm_probe.core.provenance import unfounded
from vllm_probe.core.schema import violations
from vllm_probe.vendors.null.adapter import NullAdapter, NullTensor


def stored(adapter: NullAdapter, target: Path, plan: BenchPlan, progress: Any = silent) -> Capability:
    adapter.close()
    return measure(adapter, plan, STAMP, target, progress)


def valid(path: Path) -> Capability:
    document = json.loads(path.read_text())
    assert violations("capability", document) == ()
    assert unfounded(document) == ()
    return codec.from_json(Capability, document)


def test_a_kernel_that_hangs_ends_the_bench_with_what_was_measured(tmp_path: Path) -> None:
    adapter = started(script=replace(SCRIPT, faults={"linear.bf16": "hang"}))
    target = tmp_path / "capability.json"
    target.write_text("before")
    with pytest.raises(DeviceHung, match=r"did not end.*keeps what was measured"):
        stored(adapter, target, plan_of(adapter, stop_s=6.0))
    assert target.read_text() == "before"
    document = valid(tmp_path / "capability.json.partial")
    assert document.measurements[GEMM].status == "error"
    assert "bf16 512 rows did not end" in document.unknown[GEMM]
    doubted(document)


class Late(Sound):
    """Hangs in a copy of large arrays once it has made `most` of them."""

    copies = 0
    hangs = False
    most = 0

    def _copy(self, source: NullTensor, target: NullTensor, *, non_blocking: bool, queue: int) -> Event:
        self.copies += source.nbytes > MIB
        if self.hangs and self.copies > self.most:
            threading.Event().wait()
        return super()._copy(source, target, non_blocking=non_blocking, queue=queue)


def late() -> Late:
    adapter = started(Late)
    assert isinstance(adapter, Late)
    return adapter


def test_a_test_that_hangs_costs_none_of_the_others_that_had_a_round(tmp_path: Path) -> None:
    """And the next run goes on without it."""
    target, partial = tmp_path / "capability.json", tmp_path / "capability.json.partial"
    adapter = late()
    adapter.hangs = True
    adapter.most = _copies_of_one_round()
    with pytest.raises(DeviceHung, match="memory copy did not end"):
        stored(adapter, target, plan_of(adapter, parts=frozenset({"memory"}), stop_s=4.0))
    document = valid(partial)
    abouts = {kind: document.measurements[f"/memory/{kind}_gb_s"] for kind in ("read", "copy", "triad")}
    assert {kind: about.status for kind, about in abouts.items()} == {
        "read": "noisy",
        "copy": "error",
        "triad": "noisy",
    }
    assert value_at(document, READ) == pytest.approx(100, rel=0.01)
    assert "interrupted after" in str(abouts["read"].reason)
    steps: list[str] = []
    stored(again := started(), target, plan_of(again, parts=frozenset({"memory"})), lambda step, *_: steps.append(step))
    document = valid(target)
    assert "memory copy" not in steps
    assert document.measurements["/memory/copy_gb_s"].status == "error"
    assert "in an earlier run" in document.unknown["/memory/copy_gb_s"]
    assert document.measurements[READ].status == "measured"


def _copies_of_one_round() -> int:
    """So many that the first round of all tests is over, and the second of the copies has begun."""
    counted = late()
    seen: list[int] = []

    def count(step: str, done: int, total: int) -> None:
        if step == "memory copy":
            seen.append(counted.copies)

    run_bench(counted, plan_of(counted, parts=frozenset({"memory"})), STAMP, save=lambda document: None, progress=count)
    return seen[1] + 1


def test_what_had_no_round_before_a_hang_is_skipped(tmp_path: Path) -> None:
    adapter = started(script=replace(SCRIPT, faults={"read": "hang"}))
    with pytest.raises(DeviceHung):
        stored(adapter, tmp_path / "capability.json", plan_of(adapter, parts=frozenset({"memory"}), stop_s=4.0))
    document = valid(tmp_path / "capability.json.partial")
    assert document.measurements[READ].status == "error"
    assert document.measurements[TRIAD].status == "skipped"


def test_a_partial_document_is_not_written_where_a_link_leads(tmp_path: Path) -> None:
    victim, partial = tmp_path / "victim", tmp_path / "capability.json.partial"
    victim.write_text("theirs")
    partial.symlink_to(victim)
    first = started()
    with pytest.raises(Interrupted):
        stored(first, tmp_path / "capability.json", plan_of(first), interrupt)
    assert victim.read_text() == "theirs"
    assert not partial.is_symlink()
    assert value_at(valid(partial), READ) == pytest.approx(100, rel=0.01)


def test_going_on_says_from_when(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = started()
    with pytest.raises(Interrupted):
        stored(first, tmp_path / "capability.json", plan_of(first), interrupt)
    again = started()
    stored(again, tmp_path / "capability.json", plan_of(again))
    assert f"went on from 03:04: {tmp_path / 'capability.json.partial'}" in caplog.text


class Talking(Sound):
    """Prints."""

    def _read(self, source: NullTensor) -> NullTensor:
        print("[driver] hello")  # noqa: T201 - what is tested
        return super()._read(source)


def test_what_an_adapter_prints_does_not_come_between_a_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adapter = started(Talking)
    stored(adapter, tmp_path / "capability.json", plan_of(adapter, parts=frozenset({"memory"})))
    out, err = capsys.readouterr()
    assert out == ""
    assert "[driver] hello" in err


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


class Raising(Sound):
    """Raises something of its own where it is opened."""

    error: BaseException | None = None

    def _open(self) -> None:
        if self.error:
            raise self.error


@pytest.mark.parametrize("error", [RuntimeError("driver says no"), SystemExit(1)], ids=repr)
def test_whatever_the_opening_of_a_device_raises_is_no_bug_of_ours(tmp_path: Path, error: BaseException) -> None:
    adapter = started(Raising)
    plan = plan_of(adapter)
    adapter.error = error  # type: ignore[attr-defined]
    said = f"null0 cannot be opened: {type(error).__name__}: {error}"
    with pytest.raises(DeviceUnavailable, match=f"^{said}$") as raised:
        stored(adapter, tmp_path / "capability.json", plan)
    assert "doctor" in raised.value.hint
    assert list(tmp_path.iterdir()) == []


class Opening(Sound):
    """Hangs while it is opened."""

    def _open(self) -> None:
        if hasattr(self, "hangs"):
            threading.Event().wait()


def test_a_device_that_hangs_while_it_is_opened(tmp_path: Path) -> None:
    adapter = started(Opening)
    plan = plan_of(adapter, stop_s=0.3)
    adapter.hangs = True  # type: ignore[attr-defined]
    with pytest.raises(DeviceHung, match=r"the opening of the device did not end.*nothing was kept") as ended:
        stored(adapter, tmp_path / "capability.json", plan)
    assert "goes on" not in ended.value.hint
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


def test_ctrl_c_without_a_file_promises_nothing_to_go_on_from() -> None:
    adapter = started()
    plan = plan_of(adapter)
    adapter.close()
    with pytest.raises(Interrupted, match="nothing was kept") as ended:
        measure(adapter, plan, STAMP, None, interrupt)
    assert ended.value.hint == "run the same command again to measure from the start"


def test_ctrl_c_as_the_work_begins_says_where_the_partial_document_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "worker":
            monkeypatch.undo()
            raise KeyboardInterrupt

    adapter = started()
    target = tmp_path / "capability.json"
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(Interrupted, match="keeps what was measured"):
        stored(adapter, target, plan_of(adapter))
    valid(tmp_path / "capability.json.partial")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["capability.json.partial"]


class Impatient(Sound):
    """Ctrl-C while it closes."""

    def _close(self) -> None:
        if threading.current_thread().name == "worker":
            _thread.interrupt_main()
        super()._close()


def test_ctrl_c_while_the_device_is_closed_says_where_the_partial_document_is(tmp_path: Path) -> None:
    adapter = started(Impatient)
    with pytest.raises(Interrupted, match="keeps what was measured"):
        stored(adapter, tmp_path / "capability.json", plan_of(adapter))
    valid(tmp_path / "capability.json.partial")
    assert not (tmp_path / "capability.json").exists()


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
