"""What a scene answers, by the rules of replay."""

import ctypes
import errno
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.core import codec
from vllm_probe.core.errors import (
    InvalidJson,
    LibraryTimeout,
    LibraryUnavailable,
    ProbeError,
    RecordingIncomplete,
    ReplayRefused,
    SchemaViolation,
    UnreadableFile,
    UnsupportedVersion,
)
from vllm_probe.core.scene import Facts, LibraryFacts, Scene
from vllm_probe.host.replay import ReplayHost, load_host

ROOT = Path(__file__).parents[3]
CARD = "/sys/devices/pci0000:00/0000:03:00.0"


def replay(*, complete: bool = False, **facts: Any) -> ReplayHost:
    return ReplayHost(Scene(facts=codec.from_json(Facts, codec.to_json(facts)), complete=complete))


def test_folders_of_listed_files_exist_and_links_lead_through_them() -> None:
    host = replay(
        files={
            f"{CARD}/vendor": "0x1002",
            f"{CARD}/drm/card0/dev": "226:0",
            f"{CARD}/drm/card0/device": "!link ../../../0000:03:00.0",
            "/sys/class/drm/card0": "!link ../../devices/pci0000:00/0000:03:00.0/drm/card0",
            "/gone": "!absent",
        }
    )
    assert host.read_text("/sys/class/drm/card0/device/vendor") == "0x1002"
    assert host.readlink("/sys/class/drm/card0/device") == "../../../0000:03:00.0"
    assert host.exists(f"{CARD}/drm")
    assert host.glob("/sys/class/drm/card[0-9]*/device/ven*") == ("/sys/class/drm/card0/device/vendor",)
    assert host.glob("/sys/class/*") == ("/sys/class/drm",)
    assert host.glob("/gon*") == ()
    assert not host.exists("/gone")
    assert not host.exists("/sys/class/net")


def test_sizes_mounts_and_bytes_are_answered() -> None:
    host = replay(files={"/lib/a.so": "!size 5000000", "/dev/shm": "!statfs 67108864", "/efi": "!hex 0600000001"})
    assert host.read_bytes("/lib/a.so", 4) == b"\0\0\0\0"
    library, memory = host.stat("/lib/a.so"), host.stat("/dev/shm")
    assert library is not None
    assert library.size_bytes == 5000000
    assert memory is not None
    assert (memory.kind, memory.mount_bytes) == ("dir", 64 << 20)
    assert host.read_bytes("/efi") == b"\6\0\0\0\1"


@pytest.mark.parametrize(
    ("node", "status", "expected"),
    [
        ("!chr 226:128 0660 0:992", "Uid:\t1000\t1000\t1000\t1000\nGroups:\t44 992\n", 0),
        ("!chr 226:128 0660 0:992", "Uid:\t1000\t1000\t1000\t1000\nGroups:\t44 99\n", errno.EACCES),
        ("!chr 226:128 0640 0:992", "Uid:\t1000\t1000\t1000\t1000\nGroups:\t992\n", errno.EACCES),
        ("!chr 226:128 0600 1000:0", "Uid:\t1000\t1000\t1000\t1000\nGroups:\t\n", 0),
        ("!chr 226:128 0660 0:992", "Uid:\t0\t0\t0\t0\nGroups:\t0\n", 0),
        ("!chr 226:128 0666 0:0 EPERM", "Uid:\t0\t0\t0\t0\nGroups:\t0\n", errno.EPERM),
        ("!absent", "", errno.ENOENT),
    ],
)
def test_the_errno_of_an_open_is_listed_or_follows_from_mode_and_identity(
    node: str, status: str, expected: int
) -> None:
    host = replay(files={"/dev/dri/renderD128": node, "/proc/self/status": status})
    assert host.open_errno("/dev/dri/renderD128") == expected


def test_programs_are_known_from_their_commands_and_files() -> None:
    commands = {"nvidia-smi -L": "GPU 0\n", "npu-smi info": "!missing", "rocm-smi": "!rc=2\nbroken\n"}
    host = replay(files={"/usr/sbin/lspci": "!size 1"}, commands=commands)
    assert host.which("nvidia-smi")
    assert host.which("lspci") == "/usr/sbin/lspci"
    assert host.which("npu-smi") is None
    assert host.which("xpu-smi") is None
    assert host.run(["nvidia-smi", "-L"], 1.0).stdout == "GPU 0\n"
    assert host.run(["/opt/bin/nvidia-smi", "-L"], 1.0, {"X": "1"}).stdout == "GPU 0\n"
    assert host.run(["rocm-smi"], 1.0).returncode == 2
    assert host.run(["nvidia-smi", "-q"], 1.0).status == "missing"


def test_waiting_advances_the_clock_of_the_recording() -> None:
    host = replay(commands={"nvidia-smi": "!timeout"})
    begin = host.now()
    host.sleep(2.5)
    assert host.run(["nvidia-smi"], 10.0).status == "timeout"
    assert host.now() - begin == 12.5
    assert replay().now() == begin


class Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong))


def test_library_calls_give_their_status_or_what_they_write() -> None:
    calls = {
        "cuInit": "0x3e7",
        "cuDeviceGetCount": 2,
        "cuMemGetInfo": [7, 9],
        "nvmlDeviceGetMemoryInfo": 3,
        "nvmlDeviceGetName": "NVIDIA H200",
        "hang": "timeout",
    }
    host = replay(libs={"libcuda.so.1": {"load": "ok", "path": "/lib/libcuda.so.1", "calls": calls}})
    library = host.library("libcuda.so.1")
    count, free, total = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
    name, memory = ctypes.create_string_buffer(96), Memory()
    assert library.path == "/lib/libcuda.so.1"
    assert library.call("cuInit", 0) == 999
    assert (library.call("cuDeviceGetCount", ctypes.byref(count)), count.value) == (0, 2)
    library.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    assert (free.value, total.value) == (7, 9)
    assert library.call("nvmlDeviceGetMemoryInfo_v2", None, ctypes.byref(memory)) == 3
    assert (library.call("nvmlDeviceGetName", None, name, 96), name.value) == (0, b"NVIDIA H200")
    with pytest.raises(LibraryUnavailable, match="FUNCTION_NOT_FOUND"):
        library.call("cuCtxCreate")
    begin = host.now()
    with pytest.raises(LibraryTimeout):
        library.call("hang")
    assert host.now() > begin


def test_a_text_that_begins_with_a_digit_is_no_number() -> None:
    library = replay(libs={"a": {"calls": {"version": "550.90.07"}}}).library("a")
    text = ctypes.create_string_buffer(80)
    assert (library.call("version", text, 80), text.value) == (0, b"550.90.07")


def test_a_list_of_rows_is_counted_and_written_as_far_as_there_is_room() -> None:
    library = replay(libs={"a": {"calls": {"rows": [[1, 2], {"total": 3, "free": 4}, [5, 6]]}}}).library("a")
    count, rows = ctypes.c_uint(2), (Memory * 2)()
    assert library.call("rows", ctypes.byref(count), rows) == 0
    assert (count.value, [(row.total, row.free) for row in rows]) == (3, [(1, 2), (3, 4)])
    count.value = 0
    assert library.call("rows", ctypes.byref(count), None) == 0
    assert count.value == 3


def test_a_structure_is_filled_by_position_or_by_name() -> None:
    library = replay(libs={"a": {"calls": {"one": [5, 6], "two": {"free": 4}}}}).library("a")
    memory = Memory()
    library.call("one", ctypes.byref(memory))
    assert (memory.total, memory.free) == (5, 6)
    library.call("two", ctypes.byref(memory))
    assert memory.free == 4


@given(st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)))
def test_a_strange_value_of_a_call_is_a_typed_error(value: object) -> None:
    library = replay(libs={"a": {"calls": {"get": value}}}).library("a")
    for target in (ctypes.c_int(), Memory(), ctypes.create_string_buffer(4), ctypes.c_float()):
        try:
            library.call("get", ctypes.byref(target))
            library.call("get")
        except LibraryUnavailable:
            pass


def test_a_library_that_is_not_there_says_what_the_loader_would() -> None:
    host = replay(libs={"libhal.so": None, "libacl.so": {"load": "error: libhal.so: cannot open"}})
    with pytest.raises(LibraryUnavailable, match=r"libhal\.so: cannot open shared object file"):
        host.library("libhal.so")
    with pytest.raises(LibraryUnavailable, match=r"^libhal\.so: cannot open$"):
        host.library("libacl.so")
    with pytest.raises(LibraryUnavailable, match=r"libother\.so: cannot open shared object file"):
        host.library("libother.so")


def test_statistics_come_from_the_recorded_files() -> None:
    host = replay(
        files={
            "/proc/self/status": "VmRSS:\t  2048 kB\nCpus_allowed_list:\t0-2,5\n",
            "/proc/meminfo": "MemTotal:       1024 kB\nMemAvailable: 512 kB\n",
            "/proc/loadavg": "1.25 0.9 0.5 1/99 4242\n",
        }
    )
    stats = host.stats()
    assert stats.affinity == (0, 1, 2, 5)
    assert (stats.memory_total_bytes, stats.memory_available_bytes) == (1 << 20, 1 << 19)
    assert (stats.load_1m, stats.process_rss_bytes) == (1.25, 1 << 21)


def test_the_platform_is_linux_unless_the_recording_says_otherwise() -> None:
    files = {
        "/proc/version": "Linux version 5.15.0-wsl2 (gcc)",
        "/usr/lib/python3/dist-packages/torch/version.py": "",
        "/opt/venv/lib/python3.12/site-packages/vllm/_version.py": "",
    }
    found = replay(files=files, env={"VIRTUAL_ENV": "/opt/venv"}).platform()
    assert (found.system, found.machine, found.release, found.python) == ("linux", "x86_64", "5.15.0-wsl2", None)
    assert found.site_packages == ("/opt/venv/lib/python3.12/site-packages", "/usr/lib/python3/dist-packages")
    assert replay(platform={"system": "android", "machine": "aarch64"}).platform().system == "android"


@pytest.mark.parametrize(
    ("system", "machine", "named"),
    [
        ("Windows", "AMD64", "windows x86_64"),
        ("windows", "ARM64", "windows aarch64"),
        ("Darwin", "arm64", "darwin aarch64"),
    ],
)
def test_systems_and_processors_have_one_name_however_a_recording_spells_them(
    system: str, machine: str, named: str
) -> None:
    found = replay(platform={"system": system, "machine": machine}).platform()
    assert f"{found.system} {found.machine}" == named


def test_our_own_variables_are_this_process_even_on_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    monkeypatch.setenv("VLLM_PROBE_PLUGINS", "null")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    host = replay(env={"CUDA_VISIBLE_DEVICES": "0", "XDG_STATE_HOME": "/recorded"}, complete=True)
    assert host.env("XDG_STATE_HOME") == "/state"
    assert host.env("VLLM_PROBE_PLUGINS") == "null"
    assert host.env("CUDA_VISIBLE_DEVICES") == "0"


@pytest.mark.parametrize(
    ("ask", "named"),
    [
        (lambda host: host.read_text("/proc/new"), "read /proc/new"),
        (lambda host: host.read_bytes("/sized"), "read /sized"),
        (lambda host: host.exists("/proc/new"), "exists /proc/new"),
        (lambda host: host.glob("/dev/*"), "glob /dev/*"),
        (lambda host: host.readlink("/proc/new"), "readlink /proc/new"),
        (lambda host: host.stat("/proc"), "stat /proc"),
        (lambda host: host.open_errno("/proc/new"), "open /proc/new"),
        (lambda host: host.env("NEW"), "env NEW"),
        (lambda host: host.which("new"), "which new"),
        (lambda host: host.run(["old", "-x"], 1.0), "run old -x"),
        (lambda host: host.library("libnew.so"), "library libnew.so"),
        (lambda host: host.library("libold.so").call("new", 1), "call libold.so new(1)"),
        (lambda host: host.ioctl("/dev/x", 16, b"\1"), "ioctl /dev/x 0x10 01"),
        (lambda host: host.stats(), "read /proc/self/status"),
    ],
)
def test_a_complete_recording_names_the_call_that_it_does_not_hold(
    ask: Callable[[ReplayHost], object], named: str
) -> None:
    facts: dict[str, Any] = {
        "files": {"/proc/old": "", "/sized": "!size 4"},
        "commands": {"old": ""},
        "libs": {"libold.so": {}},
    }
    with pytest.raises(RecordingIncomplete) as caught:
        ask(replay(complete=True, **facts))
    assert f"`{named}`" in str(caught.value)
    with suppress(LibraryUnavailable):
        ask(replay(**facts))


def test_a_recording_starts_no_process() -> None:
    with pytest.raises(ReplayRefused):
        replay().spawn(["python3"])


def test_a_scene_is_read_from_a_file_or_a_folder(tmp_path: Path) -> None:
    text = json.dumps({"facts": {"files": {"/a": "b"}}, "expected": {}})
    (tmp_path / "scene.json").write_text(text)
    (tmp_path / "line.jsonl").write_text(text + "\n")
    assert load_host(tmp_path).read_text("/a") == "b"
    assert load_host(tmp_path / "line.jsonl").read_text("/a") == "b"


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (None, UnreadableFile, "scene.json"),
        ("{", InvalidJson, "line 1"),
        ("{}\n{}", InvalidJson, "line 2"),
        ("{}", SchemaViolation, "'facts' is missing"),
        ('{"facts": {"files": {"/a/b": 1}}}', SchemaViolation, "/facts/files/~1a~1b"),
        ('{"facts": {"files": {"/a/b": "!chr x"}}}', SchemaViolation, "/facts/files/~1a~1b"),
        ('{"facts": {}, "schema_version": "2.0"}', UnsupportedVersion, "2.0"),
    ],
)
def test_a_scene_that_cannot_be_used_says_where(
    tmp_path: Path, text: str | None, error: type[ProbeError], said: str
) -> None:
    if text is not None:
        (tmp_path / "scene.json").write_text(text)
    with pytest.raises(error, match=said.replace(".", r"\.")):
        load_host(tmp_path)


PATHS = st.lists(st.sampled_from(["", ".", "..", "a", "b", "*", "[", "é"]), max_size=4).map("/".join) | st.text(
    max_size=4
)
TEXTS = st.sampled_from(
    ["", "x", "!dir", "!absent", "!link /a", "!link ../b", "!link b", "!size 3", "!chr 1:3 0000 1:1"]
)
FACTS = st.fixed_dictionaries(
    {
        "files": st.dictionaries(PATHS, TEXTS | st.text(max_size=12)),
        "commands": st.dictionaries(st.text(max_size=4), st.text(max_size=9) | st.just("!rc=1\nx")),
        "env": st.dictionaries(st.text(max_size=3), st.none() | st.text(max_size=3)),
        "ioctls": st.dictionaries(st.text(max_size=3) | st.just("/a 0x1 "), st.none() | st.text(max_size=3)),
        "platform": st.dictionaries(st.sampled_from(["system", "site_packages"]), st.text(max_size=3)),
    }
)


@given(FACTS, st.booleans(), PATHS)
def test_any_scene_is_refused_with_a_typed_error_or_answers(facts: dict[str, Any], complete: bool, path: str) -> None:
    try:
        host = replay(complete=complete, **facts)
    except ProbeError:
        return
    questions = (
        host.read_text,
        host.exists,
        host.glob,
        host.readlink,
        host.stat,
        host.open_errno,
        host.env,
        host.which,
        lambda path: host.run([path], 1.0),
        lambda path: host.ioctl(path, 1, b""),
        lambda _: host.stats(),
        lambda _: host.platform(),
    )
    for question in questions:
        try:
            question(path)
        except (RecordingIncomplete, SchemaViolation) as error:
            assert complete or isinstance(error, SchemaViolation)  # noqa: PT017 - either is right


def test_every_published_scene_loads_and_answers() -> None:
    path = ROOT / ".." / "shared" / "data" / "scenes.jsonl"
    if not path.exists():
        pytest.skip("the scenes are not beside the repository")
    for line in path.read_text().splitlines():
        scene = codec.from_json(Scene, json.loads(line))
        host = ReplayHost(scene)
        for listed, text in scene.facts.files.items():
            assert host.exists(listed) is not text.startswith(("!absent", "!link ../"))
            assert text.startswith("!") or host.read_text(listed) == text
            assert text.startswith("!absent") or listed in host.glob(listed)
        for command in scene.facts.commands:
            host.run(command.split(" "), 1.0)
        for soname, library in scene.facts.libs.items():
            if library is not None and library.load == "ok":
                assert host.library(soname).path == library.path


def test_library_facts_default_to_a_library_that_loads() -> None:
    assert replay(libs={"a": codec.to_json(LibraryFacts())}).library("a").path is None


def test_commands_that_nobody_runs_are_transcripts() -> None:
    commands = {
        "docker run --gpus all x": "!rc=125\nno",
        "ldconfig": "a warning",
        "ldconfig -p": "a list",
        "docker info --format {{json .}}": "{}",
        "python3 -c import torch": "!rc=1\nImportError",
        "lspcix": "y",
    }
    assert replay(commands=commands).transcripts() == (
        "$ docker run --gpus all x\nno\n",
        "$ ldconfig\na warning\n",
        "$ lspcix\ny\n",
    )


def test_a_recording_has_no_clock_and_takes_no_variables() -> None:
    assert replay().clock_mhz() is None
    assert not replay().copy_past_caches(4096, 8192, 64)
    with pytest.raises(ReplayRefused):
        replay().set_env("ONEDNN_MAX_CPU_ISA", "AVX2")
