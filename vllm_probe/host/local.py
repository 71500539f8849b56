"""This machine."""

import errno
import glob
import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from vllm_probe.core.errors import LibraryUnavailable
from vllm_probe.core.system import CommandResult, CommandStatus, FileKind, FileStat, HostStats, Platform, T
from vllm_probe.core.values import JsonValue
from vllm_probe.host.children import LocalChild, start
from vllm_probe.host.naming import machine_name
from vllm_probe.host.stats import read_stats

if TYPE_CHECKING:
    import ctypes
    import subprocess

_MAX_BYTES = 1 << 22
_DRAIN_S = 1.0
"""How long a command that has ended is read for, where what it left behind in another session holds its output open."""
_KEPT_VARIABLES = ("PATH", "HOME", "LD_LIBRARY_PATH", "SYSTEMROOT", "TMPDIR", "XDG_RUNTIME_DIR")
_SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # not on the PATH of ordinary users of Debian
_KINDS: dict[int, FileKind] = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFCHR: "char", stat.S_IFBLK: "block"}


class LocalHost:
    """The machine that this process runs on.

    Reads are bounded, do not block on devices and never raise. Commands get a closed environment, and at the timeout
    all that one has started dies with it, also in other sessions.
    """

    wakes: bool = False

    def read_text(self, path: str) -> str | None:
        content = self.read_bytes(path)
        return None if content is None else content.decode("utf-8", "replace")

    def read_bytes(self, path: str, limit: int = _MAX_BYTES) -> bytes | None:
        kept = bytearray()
        try:
            handle = _open(path, os.O_RDONLY)
        except (OSError, ValueError):
            return None
        try:
            while len(kept) < limit and (chunk := os.read(handle, limit - len(kept))):
                kept += chunk
        except OSError as error:  # the kernel's log ends with EAGAIN
            return bytes(kept) if kept or error.errno == errno.EAGAIN else None
        finally:
            os.close(handle)
        return bytes(kept)

    def exists(self, path: str) -> bool:
        return self.stat(path) is not None

    def glob(self, pattern: str) -> tuple[str, ...]:
        return tuple(sorted(glob.glob(pattern)))  # noqa: PTH207 - patterns are absolute

    def readlink(self, path: str) -> str | None:
        try:
            return os.readlink(path)  # noqa: PTH115 - as stored, not normalised
        except (OSError, ValueError):
            return None

    def stat(self, path: str) -> FileStat | None:
        try:
            found = os.stat(path)  # noqa: PTH116 - as above
        except (OSError, ValueError):
            return None
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "other")
        return FileStat(
            kind=kind,
            mode=stat.S_IMODE(found.st_mode),
            uid=found.st_uid,
            gid=found.st_gid,
            device=(os.major(found.st_rdev), os.minor(found.st_rdev)) if kind in ("char", "block") else None,
            size_bytes=found.st_size if kind in ("file", "other") else 0,
            mount_bytes=_mount_bytes(path) if kind == "dir" else None,
        )

    def open_errno(self, path: str) -> int:
        found = self.stat(path)
        is_device = found is not None and found.device is not None
        try:
            os.close(_open(path, os.O_RDWR if is_device else os.O_RDONLY))
        except OSError as error:
            return error.errno or errno.EIO
        except ValueError:
            return errno.EINVAL
        return 0

    def env(self, name: str) -> str | None:
        return os.environ.get(name)

    def set_env(self, name: str, value: str) -> None:
        os.environ[name] = value

    def which(self, program: str) -> str | None:
        return shutil.which(program, path=_search_path())

    def run(self, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None) -> CommandResult:
        import subprocess

        program = self.which(argv[0])
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        try:
            with subprocess.Popen(
                [program or argv[0], *argv[1:]],
                bufsize=0,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=kept | {"PATH": _search_path(), "LC_ALL": "C", **(env or {})},
                start_new_session=True,
            ) as process:
                return _collect(process, timeout_s)
        except (OSError, ValueError):
            return CommandResult(status="missing")

    def spawn(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> "LocalChild":
        return start(argv, env)

    def launch(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> "LocalChild":
        return start(argv, env, apart=True)

    def library(self, name: str) -> "LocalLibrary":
        import ctypes

        try:
            return LocalLibrary(ctypes.CDLL(name))
        except OSError as error:
            raise LibraryUnavailable(str(error), hint="run `vllm-probe doctor`") from error

    def isolated(self, function: str, timeout_s: float) -> JsonValue:
        from vllm_probe.host.isolated import in_child

        return in_child(self, function, timeout_s)

    def attempt(self, part: str, ask: Callable[[], T]) -> T:  # noqa: ARG002 - only a child of `isolated` tells it
        return ask()

    def ioctl(self, path: str, request: int, data: bytes, pointers: Sequence[int] = ()) -> bytes | None:
        from vllm_probe.host.ioctls import drive

        try:
            handle = _open(path, os.O_RDWR)
        except (OSError, ValueError):
            return None
        try:
            return drive(handle, request, data, pointers)
        finally:
            os.close(handle)

    def stats(self) -> HostStats:
        stats = read_stats(self.read_text)
        if stats.affinity is None:
            allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 0)
            stats = replace(stats, affinity=tuple(sorted(allowed)) or None)
        if stats.memory_total_bytes is not None:
            return stats
        import psutil

        memory, load, resident = psutil.virtual_memory(), psutil.getloadavg()[0], psutil.Process().memory_info().rss
        sized = replace(stats, memory_total_bytes=memory.total, memory_available_bytes=memory.available)
        return replace(sized, load_1m=load, process_rss_bytes=resident)

    def clock_mhz(self) -> float | None:
        from vllm_probe.host.clock import measure_clock_mhz

        return measure_clock_mhz()

    def copy_past_caches(self, target: int, source: int, nbytes: int) -> bool:
        from vllm_probe.host import streaming

        return streaming.copy_past_caches(target, source, nbytes)

    def platform(self) -> Platform:
        import platform

        system = "android" if hasattr(sys, "getandroidapilevel") else platform.system().lower()
        folders = (entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages"))
        return Platform(
            system=system,
            machine=machine_name(platform.machine()),
            release=platform.release() or None,
            python=platform.python_version(),
            site_packages=tuple(dict.fromkeys(folder for folder in folders if Path(folder).is_dir())),
        )

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class LocalLibrary:
    """A library in this process."""

    def __init__(self, library: "ctypes.CDLL") -> None:
        self._library = library

    @property
    def path(self) -> str | None:
        stem = f"/{Path(self._library._name).name.partition('.so')[0]}.so"  # noqa: SLF001 - ctypes has no other name for it
        maps = LocalHost().read_text("/proc/self/maps") or ""
        return next((line[line.index("/") :] for line in maps.splitlines() if stem in line), None)

    def call(self, symbol: str, *arguments: object) -> int:
        try:
            function = getattr(self._library, symbol)
        except AttributeError as error:
            raise LibraryUnavailable(f"no function {symbol}", hint="the library is older than the tool") from error
        return int(function(*arguments))


def _open(path: str, access: int) -> int:
    return os.open(path, access | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))


def _mount_bytes(path: str) -> int | None:
    with suppress(OSError, AttributeError):
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize or None
    return None


def _search_path() -> str:
    return os.pathsep.join([os.environ.get("PATH", os.defpath), *_SYSTEM_FOLDERS])


def _collect(process: "subprocess.Popen[bytes]", timeout_s: float) -> CommandResult:
    from subprocess import TimeoutExpired
    from threading import Thread

    texts = (bytearray(), bytearray())
    pipes = zip((process.stdout, process.stderr), texts, strict=True)
    readers = [Thread(target=_drain, args=pair, daemon=True) for pair in pipes]
    for reader in readers:
        reader.start()
    with suppress(TimeoutExpired):
        process.wait(timeout_s)
    returncode = process.returncode
    if returncode is None:
        _kill_descendants(process.pid)
    _kill_group(process)  # what the command left behind too, so that the pipes end
    deadline = time.monotonic() + _DRAIN_S
    for reader in readers:
        reader.join(max(deadline - time.monotonic(), 0))
    stdout, stderr = (bytes(text).decode("utf-8", "replace") for text in texts)
    status: CommandStatus = "timeout" if returncode is None else "exited"
    return CommandResult(status=status, returncode=returncode, stdout=stdout, stderr=stderr)


def _drain(pipe: IO[bytes], kept: bytearray) -> None:
    with suppress(OSError, ValueError):  # the pipe is closed under a reader that a stray grandchild holds up
        while chunk := pipe.read(1 << 16):
            kept += chunk[: _MAX_BYTES - len(kept)]


def _kill_descendants(pid: int) -> None:
    """Those of a running process, which the group of one that has left it does not tell."""
    import psutil

    with suppress(psutil.Error):
        for each in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):
                each.kill()


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
