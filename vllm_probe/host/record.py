"""A host that remembers what it answered."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from vllm_probe.core import codec
from vllm_probe.core.errors import LibraryUnavailable, RecordingIncomplete, UnwritableOutput
from vllm_probe.core.files import write_private
from vllm_probe.core.scene import Facts, LibraryFacts, Scene
from vllm_probe.core.system import Child, CommandResult, FileStat, Host, HostStats, Library, Platform, T
from vllm_probe.core.values import JsonValue
from vllm_probe.core.version import __version__
from vllm_probe.host.entries import Entry, format_command, format_entry, resolve
from vllm_probe.host.replay import OWN_VARIABLES, command_key, ioctl_key, not_found
from vllm_probe.host.scrub import Scrubber
from vllm_probe.host.stats import read_stats

_LABELS = {
    "serial: ": re.compile(r"(?:serial|unique_id)[^/]*$", re.IGNORECASE),
    "version: ": re.compile(r"version[^/]*$", re.IGNORECASE),
}  # what a file or function of such a name gives, for the scrubber

_PEOPLE = range(1000, 60001)
"""User numbers of people, https://man7.org/linux/man-pages/man5/login.defs.5.html (UID_MIN, UID_MAX)."""


def write_recording(host: "RecordingHost", directory: Path) -> Path:
    """Writes what `host` remembers to `scene.json` in `directory`, made where it is missing; returns the file's path.

    Raises:
        UnwritableOutput: it cannot be made or written.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnwritableOutput(f"cannot make {directory}: {error.strerror}", hint="name another folder") from error
    path = directory / "scene.json"
    write_private(path, codec.dumps(host.scene()))
    return path


class RecordingHost:
    """Asks `inner` and remembers the last answer to each question, the negative ones too."""

    wakes: bool = False

    def __init__(self, inner: Host) -> None:
        self._inner, self._lock = inner, Lock()
        self._files: dict[str, Entry] = {}
        self._links: dict[str, str] = {}
        self._commands: dict[str, CommandResult] = {}
        self._env: dict[str, str | None] = {}
        self._libs: dict[str, LibraryFacts | None] = {}
        self._globs: dict[str, tuple[str, ...]] = {}
        self._ioctls: dict[str, bytes | None] = {}

    def scene(self) -> Scene:
        """Everything asked so far as a complete scene without personal data."""
        scrub = _scrubber(self._inner)
        files = {path: Entry(link=target) for path, target in self._links.items()}
        files |= {
            resolve(self._links, path) if path in self._links else path: self._files[path] for path in self._files
        }
        platform = codec.to_json(self._inner.platform()) | {
            "site_packages": "\n".join(self._inner.platform().site_packages)
        }
        facts = Facts(
            files={scrub.text(path): format_entry(_scrubbed(path, entry, scrub)) for path, entry in files.items()},
            commands={scrub.text(key): scrub.text(format_command(result)) for key, result in self._commands.items()},
            env={name: None if text is None else scrub.variable(name, text) for name, text in self._env.items()},
            libs={name: facts and _scrubbed_library(facts, scrub) for name, facts in self._libs.items()},
            platform={key: scrub.text(text) for key, text in platform.items() if text is not None},
            globs={scrub.text(key): tuple(map(scrub.text, paths)) for key, paths in self._globs.items()},
            ioctls={key: None if data is None else scrub.data(data).hex() for key, data in self._ioctls.items()},
        )
        return Scene(facts=facts, complete=True, tool_version=__version__)

    def read_text(self, path: str) -> str | None:
        content = self.read_bytes(path)
        return None if content is None else content.decode("utf-8", "replace")

    def read_bytes(self, path: str, limit: int = 1 << 22) -> bytes | None:
        content = self._inner.read_bytes(path, limit)
        if content is not None:
            known = self._files.get(path, Entry()).content or b""
            self._remember(path, content=max(content, known, key=len), fails=False)
        elif (stat := self.stat(path)) and stat.kind == "file":
            self._remember(path, fails=True)
        return content

    def exists(self, path: str) -> bool:
        return self.stat(path) is not None

    def glob(self, pattern: str) -> tuple[str, ...]:
        self._globs[pattern] = self._inner.glob(pattern)
        return self._globs[pattern]

    def readlink(self, path: str) -> str | None:
        target = self._inner.readlink(path)
        if target is None:
            self.stat(path)
        else:
            self._links[path] = target
        return target

    def stat(self, path: str) -> FileStat | None:
        stat = self._inner.stat(path)
        self._remember(path, stat=stat)
        return stat

    def open_errno(self, path: str) -> int:
        self.stat(path)
        number = self._inner.open_errno(path)
        self._remember(path, errno=number)
        return number

    def env(self, name: str) -> str | None:
        value = self._inner.env(name)
        if not OWN_VARIABLES.fullmatch(name):
            self._env[name] = value
        return value

    def set_env(self, name: str, value: str) -> None:
        self._inner.set_env(name, value)

    def which(self, program: str) -> str | None:
        path = self._inner.which(program)
        if path is None:
            self._commands[program] = CommandResult(status="missing")
        else:
            self._commands[f"which {program}"] = CommandResult(status="exited", returncode=0, stdout=f"{path}\n")
        return path

    def run(self, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None) -> CommandResult:
        result = self._inner.run(argv, timeout_s, env)
        self._commands[command_key(argv, env)] = result
        return result

    def spawn(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Child:
        return self._inner.spawn(argv, env)

    def launch(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Child:
        return self._inner.launch(argv, env)

    def library(self, name: str) -> Library:
        try:
            library = self._inner.library(name)
        except LibraryUnavailable as error:
            self._libs[name] = None if str(error) == not_found(name) else LibraryFacts(load=f"error: {error}")
            raise
        known = self._libs.get(name)
        facts = self._libs[name] = LibraryFacts(path=library.path, calls=known.calls if known else {})
        from vllm_probe.host.calls import RecordingLibrary

        return RecordingLibrary(library, facts.calls)

    def isolated(self, function: str, timeout_s: float) -> JsonValue:  # noqa: ARG002 - no child: it is to be recorded
        from vllm_probe.host.isolated import answer

        return answer(self, function)

    def attempt(self, part: str, ask: Callable[[], T]) -> T:  # noqa: ARG002 - nothing ends this process
        return ask()

    def ioctl(self, path: str, request: int, data: bytes, pointers: Sequence[int] = ()) -> bytes | None:
        answer = self._inner.ioctl(path, request, data, pointers)
        self._ioctls[ioctl_key(path, request, data)] = answer
        return answer

    def stats(self) -> HostStats:
        stats = read_stats(self.read_text)
        return self._inner.stats() if stats.memory_total_bytes is None else stats

    def clock_mhz(self) -> float | None:
        return self._inner.clock_mhz()

    def copy_past_caches(self, target: int, source: int, nbytes: int) -> bool:
        return self._inner.copy_past_caches(target, source, nbytes)

    def platform(self) -> Platform:
        return self._inner.platform()

    def now(self) -> float:
        return self._inner.now()

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)

    def _remember(self, path: str, **facts: Any) -> None:
        with self._lock:
            self._files[path] = replace(self._files.get(path, Entry()), **facts)


def _scrubber(host: Host) -> Scrubber:
    def known(names: Sequence[str], ask: Callable[[str], str | None]) -> set[str]:
        values = set()
        for name in names:
            with suppress(RecordingIncomplete):
                values.add((ask(name) or "").strip())
        return values - {""}

    homes = known(("HOME", "USERPROFILE"), host.env)
    users = known(("USER", "LOGNAME", "USERNAME"), host.env)
    users |= {re.split(r"[/\\]", home)[-1] for home in homes}
    hosts = known(("/proc/sys/kernel/hostname", "/etc/hostname"), host.read_text)
    hosts |= known(("HOSTNAME", "COMPUTERNAME"), host.env)
    accounts = [line.split(":") for text in known(("/etc/passwd",), host.read_text) for line in text.splitlines()]
    people = {fields[0] for fields in accounts if fields[2:] and fields[2].isdecimal() and int(fields[2]) in _PEOPLE}
    return Scrubber(homes, users, hosts, people | known(("SUDO_USER",), host.env))


def _scrubbed(path: str, entry: Entry, scrub: Scrubber) -> Entry:
    return replace(
        entry,
        link=entry.link and scrub.text(entry.link),
        content=entry.content and scrub.data(entry.content, _label(path)),
    )


def _scrubbed_library(facts: LibraryFacts, scrub: Scrubber) -> LibraryFacts:
    calls = {}
    for key, value in facts.calls.items():
        if isinstance(value, tuple):
            status, outs = value
            value = {"status": status, "outs": [_scrubbed_out(key, out, scrub).hex() for out in outs]}  # noqa: PLW2901
        calls[scrub.text(key)] = value
    return LibraryFacts(load=scrub.text(facts.load), path=facts.path and scrub.text(facts.path), calls=calls)


def _scrubbed_out(key: str, data: bytes, scrub: Scrubber) -> bytes:
    if "uuid" in key.lower() and not data.isascii():
        return bytes(len(data))
    return scrub.data(data, _label(key.partition("(")[0]))[: len(data)].ljust(len(data), b"\0")


def _label(name: str) -> str:
    return next((label for label, pattern in _LABELS.items() if pattern.search(name)), "")
