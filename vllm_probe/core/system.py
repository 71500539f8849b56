"""What a host can be asked: the protocol behind which the operating system, a recording and a recorder stand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, TypeVar

from vllm_probe.core.values import JsonValue

T = TypeVar("T")

FileKind: TypeAlias = Literal["file", "dir", "char", "block", "other"]
CommandStatus: TypeAlias = Literal["exited", "missing", "timeout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStat:
    """What is known of a file without opening it, links followed.

    Attributes:
        kind: file, dir, char, block or other.
        mode: permission bits.
        uid: numeric owner.
        gid: numeric group.
        device: major and minor number of a device node.
        size_bytes: size.
        mount_bytes: size of the file system that it is on, null when not asked or unknown.
    """

    kind: FileKind
    mode: int
    uid: int
    gid: int
    device: tuple[int, int] | None = None
    size_bytes: int = 0
    mount_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How a command ended.

    Attributes:
        status: exited, missing (not on PATH) or timeout.
        returncode: exit status, null unless it exited.
        stdout: text, undecodable bytes replaced.
        stderr: text.
    """

    status: CommandStatus
    returncode: int | None = None
    stdout: str = ""
    stderr: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStats:
    """Processors, memory and load now; null is unknown.

    Attributes:
        affinity: numbers of the processors that this process may run on.
        memory_total_bytes: physical memory.
        memory_available_bytes: memory that can be had without swapping.
        load_1m: runnable processes, one-minute average.
        process_rss_bytes: resident memory of this process.
    """

    affinity: tuple[int, ...] | None
    memory_total_bytes: int | None
    memory_available_bytes: int | None
    load_1m: float | None
    process_rss_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """Operating system and interpreter.

    Attributes:
        system: `linux`, `darwin`, `windows` or `android`.
        machine: `x86_64`, `aarch64`, ...
        release: kernel release.
        python: version of the interpreter, null when the host is a recording without it.
        site_packages: folders that hold installed Python distributions.
    """

    system: str
    machine: str
    release: str | None
    python: str | None
    site_packages: tuple[str, ...]


class Library(Protocol):
    """A loaded native library."""

    @property
    def path(self) -> str | None:
        """File that it was loaded from."""

    def call(self, symbol: str, *arguments: object) -> int:
        """Status of `symbol` called with ctypes `arguments`, which it may fill.

        Raises:
            LibraryUnavailable: the symbol is missing.
        """


class Child(Protocol):
    """A process that we started ourselves."""

    @property
    def pid(self) -> int:
        """Process id."""

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Exit status, or null when it still runs after `timeout_s`."""

    def signal(self, number: int) -> None:
        """Sends a signal; a process that has ended is left alone."""


class Host(Protocol):
    """The only door to the operating system.

    Reads never raise: what cannot be read is null, and `open_errno` says why.

    Attributes:
        wakes: probes may ask what sleeps, which wakes it.
    """

    wakes: bool

    def read_text(self, path: str) -> str | None:
        """Text of at most 4 MiB, undecodable bytes replaced."""

    def read_bytes(self, path: str, limit: int = 1 << 22) -> bytes | None:
        """The first `limit` bytes."""

    def exists(self, path: str) -> bool:
        """Whether `path` is there, links followed."""

    def glob(self, pattern: str) -> tuple[str, ...]:
        """Paths that match a shell pattern, sorted."""

    def readlink(self, path: str) -> str | None:
        """Target of a symbolic link as stored."""

    def stat(self, path: str) -> FileStat | None:
        """File facts, links followed."""

    def open_errno(self, path: str) -> int:
        """0 when this process can open `path` for reading and writing if a device, else reading; or the errno."""

    def env(self, name: str) -> str | None:
        """An environment variable."""

    def set_env(self, name: str, value: str) -> None:
        """Sets a variable of this process, for libraries that look at it when they are first used."""

    def which(self, program: str) -> str | None:
        """Path of a program on PATH."""

    def run(self, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None) -> CommandResult:
        """Runs a read-only command without a shell, in the C locale, with `env` added."""

    def spawn(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Child:
        """Starts a child of our own that inherits stderr; what it writes to stdout is discarded."""

    def launch(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Child:
        """Starts a program that the user asked for: what it writes to stdout goes to our stderr.

        It has a session of its own, so that a signal from the terminal reaches it through us alone.
        """

    def library(self, name: str) -> Library:
        """Loads a native library by soname.

        Raises:
            LibraryUnavailable: with the loader's text.
        """

    def isolated(self, function: str, timeout_s: float) -> JsonValue:
        """What `package.module:function` gives for a host, as JSON, from a child that native libraries may crash.

        Raises:
            LibraryTimeout: it did not return in time.
            LibraryUnavailable: it raised that, or its process ended without an answer.
        """

    def attempt(self, part: str, ask: Callable[[], T]) -> T:
        """What `ask` gives: one `part` of what a function that `isolated` runs is to find out, such as one device.

        Where native code hangs or crashes in it, the function is run again, and this raises for that part alone.

        Raises:
            LibraryUnavailable: `ask` raised it, hung or crashed, or there is no time left for it.
        """

    def ioctl(self, path: str, request: int, data: bytes, pointers: Sequence[int] = ()) -> bytes | None:
        """`data` as the driver changed it, or null when it refused.

        `pointers` are the offsets in `data` of its 64-bit pointers to other places in it; there `data` has, before and
        after, the offset of that place. What stands before the first such place is the structure of the request.
        """

    def stats(self) -> HostStats:
        """Processors, memory and load."""

    def clock_mhz(self) -> float | None:
        """Clock of the processor core that asks, measured in under 1 ms; null where that cannot be done."""

    def copy_past_caches(self, target: int, source: int, nbytes: int) -> bool:
        """Copies memory of this process with stores that bypass the caches; false where there are none.

        The target is aligned to 16 bytes, `nbytes` a multiple of 64.
        """

    def platform(self) -> Platform:
        """Operating system and interpreter."""

    def now(self) -> float:
        """Seconds since the epoch."""

    def sleep(self, seconds: float) -> None:
        """Waits; a recording advances its own clock."""
