from threading import Event

import pytest

from vllm_probe.core.worker import Worker


def test_what_the_work_gives_is_its_result() -> None:
    worker = Worker(lambda: 42)
    worker.start()
    assert worker.wait(10)
    assert worker.result() == 42


def test_what_the_work_raises_is_raised_where_it_is_waited_for() -> None:
    def fail() -> None:
        raise KeyError("lost")

    worker = Worker(fail)
    worker.start()
    assert worker.wait(10)
    with pytest.raises(KeyError, match="lost"):
        worker.result()


def test_work_that_does_not_end_is_not_waited_for_longer() -> None:
    end = Event()
    worker = Worker(end.wait)
    worker.start()
    assert not worker.wait(0.01)
    end.set()
    assert worker.wait(10)
