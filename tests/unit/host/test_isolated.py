from pathlib import Path
from typing import Any

import pytest

from vllm_probe.core.errors import LibraryTimeout, LibraryUnavailable
from vllm_probe.core.scene import Facts, Scene
from vllm_probe.core.system import Host
from vllm_probe.host.local import LocalHost
from vllm_probe.host.record import RecordingHost
from vllm_probe.host.replay import ReplayHost

HERE = "tests.unit.host.misbehaving"


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.setenv("ZE_AFFINITY_MASK", "0")


def test_a_child_answers_in_the_environment_of_this_process_whatever_the_library_prints() -> None:
    assert LocalHost().isolated(f"{HERE}:answers", 60) == {"mask": "0"}


def test_what_the_library_refuses_is_passed_on() -> None:
    with pytest.raises(LibraryUnavailable, match=r"^driver not loaded$"):
        LocalHost().isolated(f"{HERE}:refuses", 60)


def test_a_crash_ends_the_child_and_names_the_signal() -> None:
    with pytest.raises(LibraryUnavailable, match="misbehaving:crashes was killed by signal 11"):
        LocalHost().isolated(f"{HERE}:crashes", 60)


def test_an_exit_from_inside_the_library_shows_its_last_words() -> None:
    with pytest.raises(LibraryUnavailable, match="exits ended with exit code 3: fatal: version mismatch"):
        LocalHost().isolated(f"{HERE}:exits", 60)


def test_a_hang_costs_no_more_than_the_timeout() -> None:
    with pytest.raises(LibraryTimeout, match=r"did not return within 0.5 s"):
        LocalHost().isolated(f"{HERE}:hangs", 0.5)


@pytest.mark.parametrize("host", [ReplayHost(Scene(facts=Facts())), RecordingHost(LocalHost())])
def test_recordings_call_the_function_here(host: Host) -> None:
    with pytest.raises(LibraryUnavailable, match="driver not loaded"):
        host.isolated(f"{HERE}:refuses", 60)


def test_a_part_that_crashes_costs_its_own_answer_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTS", "1=crash 4=crash 5=refuse 7=crash")
    answers: Any = LocalHost().isolated(f"{HERE}:parts", 60)
    crashed = {number: f"part {number} was killed by signal 11" for number in (1, 4, 7)} | {5: "refused"}
    assert answers == [crashed.get(number, "answered") for number in range(8)]


def test_a_part_that_hangs_is_given_half_of_the_time_and_the_others_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTS", "2=hang")
    answers: Any = LocalHost().isolated(f"{HERE}:parts", 10)
    assert answers.pop(2) == "part 2 did not return within 5 s"
    assert answers == ["answered"] * 7


def test_where_many_parts_hang_those_that_answered_are_kept_within_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTS", "1=hang 3=hang 5=hang 6=hang")
    answers: Any = LocalHost().isolated(f"{HERE}:parts", 12)
    assert [answers[number] for number in (0, 2)] == ["answered"] * 2
    assert [answers[number][:24] for number in (1, 3)] == ["part 1 did not return wi", "part 3 did not return wi"]
    assert answers[7] == "part 7 was left out, because others took all the time"


def test_a_crash_outside_of_all_parts_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAULTS", raising=False)
    with pytest.raises(LibraryUnavailable, match="crashes_after_parts was killed by signal 11"):
        LocalHost().isolated(f"{HERE}:crashes_after_parts", 60)


@pytest.mark.parametrize("host", [ReplayHost(Scene(facts=Facts())), RecordingHost(LocalHost()), LocalHost()])
def test_outside_of_a_child_a_part_is_just_asked(host: Host) -> None:
    assert host.attempt("part", lambda: 7) == 7
