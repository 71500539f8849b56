"""One set of promises, kept by the machine itself, by the recorder in front of it, and by a replay of the recording."""

import ctypes
import errno
from collections.abc import Callable, Iterator

import pytest

from vllm_probe.core import codec
from vllm_probe.core.errors import LibraryUnavailable
from vllm_probe.core.scene import Scene
from vllm_probe.core.system import CommandResult, Host
from vllm_probe.host.local import LocalHost
from vllm_probe.host.record import RecordingHost
from vllm_probe.host.replay import ReplayHost

Question = Callable[[Host, str], object]


def load_missing(host: Host) -> str:
    try:
        host.library("libnowhere.so.7")
    except LibraryUnavailable as error:
        return str(error)
    return "loaded"


def call_missing(host: Host) -> bool:
    with pytest.raises(LibraryUnavailable):
        host.library("libc.so.6").call("no_such_function", 1)
    return True


def move(host: Host) -> tuple[int, int, bytes]:
    number, buffer = ctypes.c_int(), ctypes.create_string_buffer(8)
    host.library("libc.so.6").call("memcpy", ctypes.byref(number), b"\x07\0\0\0", 4)
    host.library("libc.so.6").call("strcpy", buffer, b"seven")
    return number.value, len(buffer.value), buffer.raw


QUESTIONS: dict[str, tuple[Question, object]] = {
    "text of a file": (lambda host, tree: host.read_text(f"{tree}/plain"), "line\nsecond\n"),
    "an empty file": (lambda host, tree: host.read_text(f"{tree}/empty"), ""),
    "bytes, limited": (lambda host, tree: host.read_bytes(f"{tree}/plain", 3), b"lin"),
    "all bytes, later": (lambda host, tree: host.read_bytes(f"{tree}/plain"), b"line\nsecond\n"),
    "undecodable bytes as text": (lambda host, tree: host.read_text(f"{tree}/binary"), "\x00\ufffd"),
    "undecodable bytes": (lambda host, tree: host.read_bytes(f"{tree}/binary"), b"\0\xff"),
    "text like a directive": (lambda host, tree: host.read_text(f"{tree}/directive"), "!absent"),
    "a file behind a link to a folder": (lambda host, tree: host.read_text(f"{tree}/link/inner"), "deep"),
    "a file behind a link": (lambda host, tree: host.read_text(f"{tree}/alias"), "line\nsecond\n"),
    "a folder": (lambda host, tree: host.read_text(f"{tree}/folder"), None),
    "an absent file": (lambda host, tree: host.read_text(f"{tree}/nothing"), None),
    "a name that cannot be": (lambda host, tree: host.read_bytes(f"{tree}/\0"), None),
    "exists": (lambda host, tree: host.exists(f"{tree}/plain"), True),
    "exists, folder": (lambda host, tree: host.exists(f"{tree}/folder"), True),
    "exists, absent": (lambda host, tree: host.exists(f"{tree}/nothing"), False),
    "exists, through a link": (lambda host, tree: host.exists(f"{tree}/link"), True),
    "exists, dangling link": (lambda host, tree: host.exists(f"{tree}/dangling"), False),
    "target of a link": (lambda host, tree: host.readlink(f"{tree}/link"), "./folder"),
    "target of a dangling link": (lambda host, tree: host.readlink(f"{tree}/dangling"), "nowhere"),
    "target of a file": (lambda host, tree: host.readlink(f"{tree}/plain"), None),
    "target of nothing": (lambda host, tree: host.readlink(f"{tree}/nothing"), None),
    "glob": (lambda host, tree: [path[len(tree) :] for path in host.glob(f"{tree}/[el]*")], ["/empty", "/link"]),
    "glob of nothing": (lambda host, tree: host.glob(f"{tree}/none*"), ()),
    "kind of a folder": (lambda host, tree: (found := host.stat(f"{tree}/folder")) and found.kind, "dir"),
    "mode and size": (lambda host, tree: (s := host.stat(f"{tree}/plain")) and (s.mode, s.size_bytes), (0o640, 12)),
    "a device": (
        lambda host, tree: (s := host.stat("/dev/null")) and (s.kind, s.device, s.size_bytes),
        ("char", (1, 3), 0),
    ),
    "stat of nothing": (lambda host, tree: host.stat(f"{tree}/nothing"), None),
    "opening a file": (lambda host, tree: host.open_errno(f"{tree}/plain"), 0),
    "opening a device": (lambda host, tree: host.open_errno("/dev/null"), 0),
    "opening nothing": (lambda host, tree: host.open_errno(f"{tree}/nothing"), errno.ENOENT),
    "a file that opens and cannot be read": (
        lambda host, tree: (host.read_text("/proc/self/mem"), host.open_errno("/proc/self/mem")),
        (None, 0),
    ),
    "opening below a file": (lambda host, tree: host.open_errno(f"{tree}/plain/x"), errno.ENOTDIR),
    "a variable": (lambda host, tree: host.env("HOST_TEST_COLOUR"), "green"),
    "an unset variable": (lambda host, tree: host.env("HOST_TEST_UNSET"), None),
    "a program": (lambda host, tree: host.which("sh") is not None, True),
    "no program": (lambda host, tree: host.which("no-such-program"), None),
    "a command": (
        lambda host, tree: host.run(["sh", "-c", "echo out; echo err >&2; exit 3"], 9.0),
        ("out\n", "err\n", 3),
    ),
    "a command with a variable": (
        lambda host, tree: host.run(["sh", "-c", "echo $SHADE $LC_ALL $HOST_TEST_COLOUR"], 9.0, {"SHADE": "dark"}),
        ("dark C\n", "", 0),
    ),
    "a command that prints a directive": (
        lambda host, tree: host.run(["echo", "!missing"], 9.0),
        ("!missing\n", "", 0),
    ),
    "a missing command": (lambda host, tree: host.run(["no-such-program", "-x"], 9.0), ("", "", None)),
    "a missing library": (
        lambda host, tree: load_missing(host),
        "libnowhere.so.7: cannot open shared object file: No such file or directory",
    ),
    "a missing function": (lambda host, tree: call_missing(host), True),
    "what a function writes": (lambda host, tree: move(host), (7, 5, b"seven\0\0\0")),
    "an ioctl that is refused": (lambda host, tree: host.ioctl("/dev/null", 0x5413, bytes(8)), None),
    "an ioctl on nothing": (lambda host, tree: host.ioctl(f"{tree}/nothing", 1, b""), None),
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("tree")
    (folder / "plain").write_text("line\nsecond\n")
    (folder / "plain").chmod(0o640)
    (folder / "empty").touch()
    (folder / "binary").write_bytes(b"\0\xff")
    (folder / "directive").write_text("!absent")
    (folder / "folder").mkdir()
    (folder / "folder" / "inner").write_text("deep")
    (folder / "link").symlink_to("./folder")
    (folder / "alias").symlink_to("link/../plain")
    (folder / "dangling").symlink_to("nowhere")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"HOME": "/root", "USER": "root", "LOGNAME": "root", "HOST_TEST_COLOUR": "green"}.items():
            patch.setenv(name, value)
        yield str(folder)


@pytest.fixture(scope="module", params=["local", "recording", "replay"])
def host(request: pytest.FixtureRequest, tree: str) -> Host:
    if request.param == "local":
        return LocalHost()
    recording = RecordingHost(LocalHost())
    if request.param == "replay":
        for question, _ in QUESTIONS.values():
            question(recording, tree)
        recording.stats()
        return ReplayHost(codec.from_json(Scene, codec.to_json(recording.scene())))
    return recording


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_host_gives_the_same_answer(host: Host, tree: str, name: str) -> None:
    question, expected = QUESTIONS[name]
    answer = question(host, tree)
    if isinstance(answer, CommandResult):
        answer = (answer.stdout, answer.stderr, answer.returncode)
    assert answer == expected


def test_every_host_knows_the_platform_and_the_memory(host: Host) -> None:
    assert host.platform() == LocalHost().platform()
    stats, here = host.stats(), LocalHost().stats()
    assert (stats.affinity, stats.memory_total_bytes) == (here.affinity, here.memory_total_bytes)
    assert stats.memory_available_bytes is not None
    assert stats.process_rss_bytes is not None
