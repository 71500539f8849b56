import pytest

from vllm_probe.core.scene import Facts, Scene
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.cpu.streaming import StreamingCopy


class Copying(ReplayHost):
    """Notes what is copied, and refuses parts of lines."""

    def __init__(self) -> None:
        super().__init__(Scene(facts=Facts()))
        self.copied: list[tuple[int, int, int]] = []

    def copy_past_caches(self, target: int, source: int, nbytes: int) -> bool:
        self.copied.append((target, source, nbytes))
        return nbytes % 64 == 0


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("nbytes", [64, 640, 4096, 64 * 1001])
def test_the_parts_are_whole_lines_that_cover_everything_once(threads: int, nbytes: int) -> None:
    host = Copying()
    streaming = StreamingCopy(host, threads)
    assert streaming.copy(1 << 20, 1 << 24, nbytes)
    streaming.close()
    parts = sorted(host.copied)
    assert len(parts) <= threads
    assert [source - target for target, source, _ in parts] == [(1 << 24) - (1 << 20)] * len(parts)
    assert [target for target, _, _ in parts] == [(1 << 20) + sum(p[2] for p in parts[:i]) for i in range(len(parts))]
    assert sum(size for _, _, size in parts) == nbytes


@pytest.mark.parametrize("nbytes", [0, 100])
def test_what_the_host_refuses_is_refused(nbytes: int) -> None:
    streaming = StreamingCopy(Copying(), 2)
    assert not streaming.copy(0, 4096, nbytes)
    streaming.close()
