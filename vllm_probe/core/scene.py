"""scene.json: what a host answered, so that the same code runs without the hardware."""

from dataclasses import dataclass, field

from vllm_probe.core.values import JsonValue, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryFacts:
    """How a native library behaved.

    Attributes:
        load: `ok`, or `error: ...` with the loader's text.
        path: file that was loaded.
        calls: function name without `_v2` to its status or value; recorded, `name(arguments)` to status and outs.
    """

    load: str = "ok"
    path: str | None = None
    calls: dict[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Recorded answers; what is not listed is absent.

    Attributes:
        files: path to text, or `!chr`, `!link`, `!dir`, `!absent`, `!hex`, `!size`, `!statfs`.
        commands: argv joined with spaces to stdout; a first line `!rc=N` is the exit status, `!missing` not on PATH.
        env: environment variables; null was asked for and not set.
        libs: soname to its behaviour; null cannot be loaded.
        platform: system, machine and release; Linux x86_64 by default.
        globs: shell pattern to what it matched; without it the listed files are matched.
        ioctls: path, request and data in hexadecimal to the data that came back; null was refused.
    """

    files: dict[str, str] = field(default_factory=dict)
    commands: dict[str, str] = field(default_factory=dict)
    env: dict[str, str | None] = field(default_factory=dict)
    libs: dict[str, LibraryFacts | None] = field(default_factory=dict)
    platform: dict[str, str] = field(default_factory=dict)
    globs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ioctls: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A recorded host.

    Attributes:
        facts: the answers.
        complete: everything that was asked is recorded, so a further question is an error.
        schema_version: `MAJOR.MINOR` of the scene schema.
        tool_version: vllm-probe version that recorded it.
        id: short name.
        source: where it comes from.
        summary: one sentence.
    """

    facts: Facts
    complete: bool = False
    schema_version: Version = "1.0"
    tool_version: str | None = None
    id: str | None = None
    source: str | None = None
    summary: str | None = None
