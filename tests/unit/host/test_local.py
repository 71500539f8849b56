"""This machine: bounds, time limits and children."""

import errno
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from vllm_probe.core.errors import CommandMissing
from vllm_probe.core.system import Host
from vllm_probe.host.local import LocalHost


@pytest.fixture
def host() -> Host:
    return LocalHost()


def test_a_command_that_hangs_is_ended_with_its_children(host: Host, tmp_path: Path) -> None:
    script = f"echo early; sleep 600 & echo $! > {tmp_path}/pid; sleep 600"
    result = host.run(["sh", "-c", script], 3.0)
    assert (result.status, result.returncode, result.stdout) == ("timeout", None, "early\n")
    child = int((tmp_path / "pid").read_text())
    while _runs(child):
        time.sleep(0.02)


def test_a_command_that_hangs_is_ended_with_children_in_a_session_of_their_own(host: Host) -> None:
    script = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    print(os.getpid(), flush=True)\ntime.sleep(600)"
    results = (host.run([sys.executable, "-S", "-c", script], limit) for limit in (1.0, 10.0, 60.0))
    result = next(result for result in results if result.stdout)  # the first in which the child came to its session
    assert result.status == "timeout"
    child = int(result.stdout)
    for _ in range(1500):
        if not _runs(child):
            break
        time.sleep(0.02)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_a_command_does_not_wait_for_what_it_leaves_behind(host: Host) -> None:
    result = host.run(["sh", "-c", "sleep 600 & echo done"], 60.0)
    assert (result.status, result.stdout) == ("exited", "done\n")


def test_output_is_capped_and_the_command_still_ends(host: Host) -> None:
    result = host.run(["sh", "-c", "head -c 9000000 /dev/zero; echo end >&2"], 30.0)
    assert (len(result.stdout), result.stderr, result.returncode) == (1 << 22, "end\n", 0)


def test_a_command_sees_only_a_closed_environment(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    lines = host.run(["env"], 60.0, {"ADDED": "1"}).stdout.splitlines()
    assert {"LC_ALL=C", "ADDED=1"} <= set(lines)
    assert "SECRET_TOKEN=x" not in lines


def test_a_command_reads_nothing_from_the_terminal(host: Host) -> None:
    assert host.run(["cat"], 60.0).stdout == ""


def test_a_file_that_cannot_be_executed_is_missing(host: Host, tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("not a program")
    assert host.run([str(tmp_path / "tool")], 5.0).status == "missing"


def test_reads_are_bounded_and_do_not_block(host: Host, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert host.read_bytes("/dev/zero", 10) == bytes(10)
    assert host.read_bytes(str(tmp_path / "pipe")) == b""
    found = host.stat(str(tmp_path / "pipe"))
    assert found is not None
    assert found.kind == "other"


def test_a_file_that_may_not_be_read_says_why(host: Host, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (tmp_path / "closed").touch(mode=0)
    assert host.read_text(str(tmp_path / "closed")) is None
    assert host.open_errno(str(tmp_path / "closed")) == errno.EACCES


def test_a_child_is_waited_for_and_gets_signals(host: Host) -> None:
    child = host.spawn([sys.executable, "-c", "import time; time.sleep(600)"])
    assert child.wait(0.05) is None
    child.signal(signal.SIGTERM)
    assert child.wait(30.0) == -signal.SIGTERM
    child.signal(signal.SIGTERM)
    assert child.pid > 0


def test_a_child_keeps_our_environment_and_stderr_and_its_stdout_is_discarded(
    host: Host, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEPT", "kept")
    code = "import os, sys; print('report'); print(os.environ['KEPT'], os.environ['ADDED'], file=sys.stderr)"
    assert host.spawn([sys.executable, "-S", "-c", code], {"ADDED": "added"}).wait(30.0) == 0
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "kept added\n")


def test_a_child_that_cannot_start_is_an_error(host: Host) -> None:
    with pytest.raises(CommandMissing, match="no-such-program"):
        host.spawn(["no-such-program"])


def test_a_library_tells_where_it_was_loaded_from(host: Host) -> None:
    path = host.library("libc.so.6").path
    assert path is not None
    assert Path(path).is_absolute()
    assert "libc.so" in path


def test_an_ioctl_gives_back_what_the_driver_wrote(host: Host) -> None:
    leader, follower = os.openpty()
    try:
        window = host.ioctl(os.ttyname(follower), 0x5413, b"\xff" * 8)  # TIOCGWINSZ of asm-generic/ioctls.h
    finally:
        os.close(leader)
        os.close(follower)
    assert window == bytes(8)


def test_the_platform_names_folders_that_hold_packages(host: Host) -> None:
    found = host.platform()
    assert found.system == "linux"
    assert found.machine in {"x86_64", "aarch64"}
    assert any((Path(folder) / "pytest").is_dir() for folder in found.site_packages)


class WithoutProc(LocalHost):
    def read_bytes(self, path: str, limit: int = 0) -> bytes | None:
        return None


def test_memory_is_known_where_there_is_no_proc() -> None:
    stats = WithoutProc().stats()
    assert stats.affinity == tuple(sorted(os.sched_getaffinity(0)))
    assert stats.memory_total_bytes is not None
    assert stats.memory_available_bytes is not None
    assert stats.memory_total_bytes > stats.memory_available_bytes > 0


def test_time_passes(host: Host) -> None:
    begin = host.now()
    host.sleep(0.01)
    assert host.now() > begin


def test_a_variable_is_set_for_this_process_and_its_children(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_PROBE_TEST_WIDTH", "16")
    host.set_env("VLLM_PROBE_TEST_WIDTH", "8")
    assert host.env("VLLM_PROBE_TEST_WIDTH") == "8"
