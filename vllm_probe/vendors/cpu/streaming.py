"""Copies past the caches on all threads of the budget."""

from concurrent.futures import ThreadPoolExecutor

from vllm_probe.core.system import Host

_LINE = 64


class StreamingCopy:
    """Threads that each copy their part of an array; `close` ends them."""

    def __init__(self, host: Host, threads: int) -> None:
        self._host = host
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="streaming")

    def copy(self, target: int, source: int, nbytes: int) -> bool:
        """Copies `nbytes` between addresses of this process; false where the host cannot, or not so many."""
        part = -(-nbytes // self._threads // _LINE) * _LINE
        starts = range(0, nbytes, max(part, _LINE))
        copies = [
            self._pool.submit(
                self._host.copy_past_caches, target + start, source + start, min(starts.step, nbytes - start)
            )
            for start in starts
        ]
        return bool(copies) and all(copy.result() for copy in copies)

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown()
