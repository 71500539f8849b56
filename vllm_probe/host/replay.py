"""A recorded machine."""

import errno
import os
import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from vllm_probe.core import codec
from vllm_probe.core.errors import (
    LibraryUnavailable,
    RecordingIncomplete,
    ReplayRefused,
    SchemaViolation,
    UnsupportedVersion,
)
from vllm_probe.core.files import read_json
from vllm_probe.core.scene import Scene
from vllm_probe.core.system import Child, CommandResult, FileStat, HostStats, Library, Platform, T
from vllm_probe.core.values import JsonValue
from vllm_probe.host.entries import FOLDER, Entry, parse_command, parse_entry, resolve
from vllm_probe.host.naming import machine_name
from vllm_probe.host.stats import read_stats

OWN_VARIABLES = re.compile(r"(VLLM_PROBE|XDG|HF)_.*|NO_COLOR")
"""Variables that stay this process's own on a replay."""

READ_ONLY = (
    "amd-smi",
    "dkms status",
    "docker info",
    "hl-smi",
    "ldconfig -p",
    "ldd --version",
    "lspci",
    "npu-smi",
    "nvidia-ctk",
    "nvidia-smi",
    "python3 -c",
    "rocm-smi",
    "rocminfo",
    "sysctl -n",
    "uname",
    "which",
    "xpu-smi",
)
"""Beginnings of the commands that a probe or check may run; a recording of any other is a transcript."""

_EPOCH_S = 1767225600.0  # 2026-01-01T00:00:00Z
_SITE_PACKAGES = re.compile(r".*?/(?:site|dist)-packages(?=/)")
_PROGRAM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/lib/wsl/lib")


def load_host(path: Path) -> "ReplayHost":
    """The host recorded in the scene file `path`, or in `scene.json` of the folder `path`.

    Raises:
        UnreadableFile, InvalidJson, SchemaViolation, UnsupportedVersion: it cannot be used.
    """
    scene = codec.from_json(Scene, read_json(path / "scene.json" if path.is_dir() else path))
    if not scene.schema_version.startswith("1."):
        message = f"{path} is a scene of version {scene.schema_version}"
        raise UnsupportedVersion(message, hint="this release reads version 1: update vllm-probe")
    return ReplayHost(scene)


class ReplayHost:
    """The machine of a scene: what is not listed is absent, or an error where the scene says that it is complete.

    Time begins at a fixed moment and advances by what a call would have waited.

    Raises:
        SchemaViolation: a directive in the scene is malformed.
    """

    wakes: bool = False

    def __init__(self, scene: Scene) -> None:
        self._facts, self._complete, self._clock = scene.facts, scene.complete, _EPOCH_S
        self._entries: dict[str, Entry] = {}
        self._children: dict[str, set[str]] = defaultdict(set)
        for path, text in scene.facts.files.items():
            try:
                entry = self._entries[path] = parse_entry(text)
            except ValueError as error:
                raise SchemaViolation(str(error), pointer=codec.join("/facts/files", path)) from error
            while entry.link or entry.stat:
                parent, name = posixpath.split(path)
                if parent == path or name in self._children[parent]:
                    break
                self._children[parent].add(name)
                path = parent  # noqa: PLW2901 - on to the folder above
        self._links = {path: entry.link for path, entry in self._entries.items() if entry.link}

    def read_text(self, path: str) -> str | None:
        content = self.read_bytes(path)
        return None if content is None else content.decode("utf-8", "replace")

    def read_bytes(self, path: str, limit: int = 1 << 22) -> bytes | None:
        entry = self._entry("read", path)
        if entry.stat is None or entry.fails or entry.errno:
            return None
        if entry.content is None and entry.stat.kind == "file":
            self._unlisted(f"read {path}")
            return bytes(min(limit, entry.stat.size_bytes))
        return None if entry.content is None else entry.content[:limit]

    def exists(self, path: str) -> bool:
        return self._entry("exists", path).stat is not None

    def glob(self, pattern: str) -> tuple[str, ...]:
        if pattern in self._facts.globs:
            return self._facts.globs[pattern]
        self._unlisted(f"glob {pattern}")
        found = ["/"]
        for part in pattern.strip("/").split("/"):
            hidden = part.startswith(".")
            found = [
                posixpath.join(folder, name)
                for folder in found
                for name in set().union(*(self._children.get(at, ()) for at in (folder, resolve(self._links, folder))))
                if fnmatchcase(name, part) and (hidden or not name.startswith("."))
            ]
        return tuple(sorted(found))

    def readlink(self, path: str) -> str | None:
        entry = self._entries.get(path)
        if entry is None:
            folder, name = posixpath.split(path)
            entry = self._entries.get(posixpath.join(resolve(self._links, folder), name))
        if entry is None:
            self._unlisted(f"readlink {path}")
        return entry.link if entry else None

    def stat(self, path: str) -> FileStat | None:
        entry = self._entry("stat", path)
        if entry is FOLDER:
            self._unlisted(f"stat {path}")
        return entry.stat

    def open_errno(self, path: str) -> int:
        entry = self._entry("open", path)
        if entry.stat is None:
            return entry.errno or errno.ENOENT
        return self._permission(entry.stat) if entry.errno is None else entry.errno

    def env(self, name: str) -> str | None:
        if OWN_VARIABLES.fullmatch(name):
            return os.environ.get(name)
        if name not in self._facts.env:
            self._unlisted(f"env {name}")
        return self._facts.env.get(name)

    def set_env(self, name: str, value: str) -> None:  # noqa: ARG002 - refused
        raise ReplayRefused(f"a recording cannot set {name}", hint="leave out --replay")

    def which(self, program: str) -> str | None:
        commands = self._facts.commands
        if f"which {program}" in commands:
            return commands[f"which {program}"].strip()
        listed = (f"{folder}/{program}" for folder in _PROGRAM_FOLDERS)
        path = next((path for path in listed if (entry := self._find(path)) and entry.stat), None)
        ran = [text != "!missing" for argv, text in commands.items() if argv.split(" ")[0] == program]
        if path is None and not ran:
            self._unlisted(f"which {program}")
        return path or (f"/usr/bin/{program}" if any(ran) else None)

    def run(self, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None) -> CommandResult:
        commands = self._facts.commands
        keys = (command_key(argv, env), command_key(argv, None), command_key([Path(argv[0]).name, *argv[1:]], None))
        text = next((commands[key] for key in keys if key in commands), None)
        if text is None:
            if commands.get(argv[0]) != "!missing":
                self._unlisted(f"run {keys[0]}")
            text = "!missing"
        result = parse_command(text)
        if result.status == "timeout":
            self._clock += timeout_s
        return result

    def transcripts(self) -> tuple[str, ...]:
        """Recorded commands that nobody runs, such as `docker run ...`, with what they printed."""
        answers = {
            command: parse_command(text)
            for command, text in self._facts.commands.items()
            if not any(f"{command} ".startswith(f"{allowed} ") for allowed in READ_ONLY)
        }
        return tuple(f"$ {command}\n{answer.stdout}\n{answer.stderr}" for command, answer in answers.items())

    def spawn(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Child:  # noqa: ARG002 - refused
        raise ReplayRefused(f"a recording cannot run {argv[0]}", hint="leave out --replay")

    def launch(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Child:  # noqa: ARG002 - refused
        raise ReplayRefused(f"a recording cannot run {argv[0]}", hint="leave out --replay")

    def library(self, name: str) -> Library:
        if name not in self._facts.libs:
            self._unlisted(f"library {name}")
        facts = self._facts.libs.get(name)
        if facts is None or facts.load != "ok":
            text = facts.load.removeprefix("error: ") if facts else not_found(name)
            raise LibraryUnavailable(text, hint="run `vllm-probe doctor`")
        from vllm_probe.host.calls import RecordedLibrary

        return RecordedLibrary(facts, lambda call: self._unlisted(f"call {name} {call}"), self.sleep)

    def isolated(self, function: str, timeout_s: float) -> JsonValue:  # noqa: ARG002 - a recorded call hangs by itself
        from vllm_probe.host.isolated import answer

        return answer(self, function)

    def attempt(self, part: str, ask: Callable[[], T]) -> T:  # noqa: ARG002 - nothing ends this process
        return ask()

    def ioctl(self, path: str, request: int, data: bytes, pointers: Sequence[int] = ()) -> bytes | None:  # noqa: ARG002
        key = ioctl_key(path, request, data)
        if key not in self._facts.ioctls:
            self._unlisted(f"ioctl {key}")
        answer = self._facts.ioctls.get(key)
        try:
            return None if answer is None else bytes.fromhex(answer)
        except ValueError as error:
            raise SchemaViolation(str(error), pointer=codec.join("/facts/ioctls", key)) from error

    def stats(self) -> HostStats:
        return read_stats(self.read_text)

    def clock_mhz(self) -> float | None:
        return None

    def copy_past_caches(self, target: int, source: int, nbytes: int) -> bool:  # noqa: ARG002 - nothing is here
        return False

    def platform(self) -> Platform:
        facts = self._facts.platform
        version = self._entries.get("/proc/version", Entry()).content or b""
        release = re.match(r"Linux version (\S+)", version.decode("utf-8", "replace"))
        folders = {match[0] for path in self._entries if (match := _SITE_PACKAGES.match(path))}
        environment = self._facts.env.get("VIRTUAL_ENV") or "/"
        return Platform(
            system=facts.get("system", "linux").lower(),
            machine=machine_name(facts.get("machine", "x86_64")),
            release=facts.get("release", release[1] if release else None),
            python=facts.get("python"),
            site_packages=tuple(facts["site_packages"].splitlines())
            if "site_packages" in facts
            else tuple(sorted(folders, key=lambda folder: (not folder.startswith(environment), folder))),
        )

    def now(self) -> float:
        return self._clock

    def sleep(self, seconds: float) -> None:
        self._clock += seconds

    def _find(self, path: str) -> Entry | None:
        entry = self._entries.get(path)
        if entry is None or entry.link:
            path = resolve(self._links, path)
            entry = self._entries.get(path)
        return FOLDER if entry is None and (path == "/" or path in self._children) else entry

    def _entry(self, call: str, path: str) -> Entry:
        entry = self._find(path)
        if entry is None:
            self._unlisted(f"{call} {path}")
        return entry or Entry()

    def _unlisted(self, call: str) -> None:
        if self._complete:
            message = f"the recording does not hold `{call}`"
            raise RecordingIncomplete(message, hint="record it with this release: vllm-probe doctor --record DIR")

    def _permission(self, stat: FileStat) -> int:
        status = (self._entries.get("/proc/self/status", Entry()).content or b"").decode("utf-8", "replace")
        uid, groups = (re.search(rf"^{key}:\s*(.*)$", status, re.MULTILINE) for key in ("Uid", "Groups"))
        user = (uid[1].split() if uid else ["0"])[-1:]
        if user == ["0"]:
            return 0
        shift = 6 if user == [str(stat.uid)] else 3 if groups and str(stat.gid) in groups[1].split() else 0
        wanted = 0o4 if stat.device is None else 0o6
        return 0 if (stat.mode >> shift) & wanted == wanted else errno.EACCES


def command_key(argv: Sequence[str], env: Mapping[str, str] | None) -> str:
    """How a recording names the command: as a shell line without quotes."""
    return " ".join([*(f"{name}={value}" for name, value in sorted((env or {}).items())), *argv])


def ioctl_key(path: str, request: int, data: bytes) -> str:
    """How a recording names the ioctl."""
    return f"{path} {request:#x} {data.hex()}"


def not_found(name: str) -> str:
    """What the loader of glibc says of a library that is not there."""
    return f"{name}: cannot open shared object file: No such file or directory"
