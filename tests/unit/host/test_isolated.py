from pathlib import Path

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
    assert LocalHost().isolated(f"{HERE}:answers", 20) == {"mask": "0"}


def test_what_the_library_refuses_is_passed_on() -> None:
    with pytest.raises(LibraryUnavailable, match=r"^driver not loaded$"):
        LocalHost().isolated(f"{HERE}:refuses", 20)


def test_a_crash_ends_the_child_and_names_the_signal() -> None:
    with pytest.raises(LibraryUnavailable, match="misbehaving:crashes was killed by signal 11"):
        LocalHost().isolated(f"{HERE}:crashes", 20)


def test_an_exit_from_inside_the_library_shows_its_last_words() -> None:
    with pytest.raises(LibraryUnavailable, match="exits ended with exit code 3: fatal: version mismatch"):
        LocalHost().isolated(f"{HERE}:exits", 20)


def test_a_hang_costs_no_more_than_the_timeout() -> None:
    with pytest.raises(LibraryTimeout, match=r"did not return within 0.5 s"):
        LocalHost().isolated(f"{HERE}:hangs", 0.5)


@pytest.mark.parametrize("host", [ReplayHost(Scene(facts=Facts())), RecordingHost(LocalHost())])
def test_recordings_call_the_function_here(host: Host) -> None:
    with pytest.raises(LibraryUnavailable, match="driver not loaded"):
        host.isolated(f"{HERE}:refuses", 20)
