"""The texts of a recording: what stands for a file and for a command, read and written."""

import errno as errors
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass

from vllm_probe.core.system import CommandResult, FileKind, FileStat

_DIRECTIVE = re.compile(r"!([a-z]+)(?: ([^\n]*))?(?:\n(.*))?", re.DOTALL)
_COMMAND = re.compile(r"!(?:(missing)|(timeout)|rc=(-?[0-9]{1,9}))(?:\n|\Z)")
_STDERR = "\n!stderr\n"
_KINDS: dict[str, tuple[FileKind, int]] = {
    "dir": ("dir", 0),
    "statfs": ("dir", 1),
    "size": ("file", 1),
    "other": ("other", 1),
    "chr": ("char", 2),
    "blk": ("block", 2),
}  # directive -> kind, and how many numbers it takes
_MAX_LINKS = 40  # MAXSYMLINKS of include/linux/namei.h


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a recording holds of one path; nothing at all is an absent file.

    Attributes:
        stat: facts of the file.
        content: bytes in it, null when they were not recorded.
        fails: it cannot be read, though it may open.
        errno: outcome of opening it, null to compute from mode and owner.
        link: target, when it is a symbolic link.
    """

    stat: FileStat | None = None
    content: bytes | None = None
    fails: bool = False
    errno: int | None = None
    link: str | None = None


FOLDER = Entry(stat=FileStat(kind="dir", mode=0o755, uid=0, gid=0))


def plain(content: bytes) -> Entry:
    """The entry of a file of root's that everybody may read."""
    return Entry(stat=FileStat(kind="file", mode=0o644, uid=0, gid=0, size_bytes=len(content)), content=content)


def parse_entry(text: str) -> Entry:
    """The entry that `text` stands for: a directive, or the text of a plain file.

    A directive is `!absent [ERRNO]`, `!link TARGET`, `!hex DIGITS`, or `!dir`, `!statfs BYTES`, `!size N`, `!other N`,
    `!chr MAJ:MIN`, `!blk MAJ:MIN`, each with an optional `MODE UID:GID [ERRNO]`. Further lines are the content, or
    `!absent` where reading fails.

    Raises:
        ValueError: a directive that is unknown or malformed.
    """
    match = _DIRECTIVE.fullmatch(text)
    if match is None:
        return plain(text.encode())
    word, line, rest = match[1], match[2] or "", match[3]
    if text.startswith("!link ") and text != "!link ":
        return Entry(link=text.removeprefix("!link "))
    if word == "hex" and rest is None:
        return plain(bytes.fromhex(line))
    fields = line.split()
    if word == "absent" and len(fields) < 2:
        return Entry(errno=_errno(fields[0]) if fields else None)
    if word not in _KINDS:
        raise ValueError(f"{text[:40]!r} is not a directive")
    kind, count = _KINDS[word]
    numbers = _numbers(fields.pop(0)) if count and fields else ()
    if len(numbers) != count or len(fields) not in (0, 2, 3):
        raise ValueError(f"{text[:40]!r} lacks fields or has too many")
    uid, gid = _numbers(fields[1]) if fields else (0, 0)
    stat = FileStat(
        kind=kind,
        mode=int(fields[0], 8) if fields else 0o755 if kind == "dir" else 0o644,
        uid=uid,
        gid=gid,
        device=(numbers[0], numbers[1]) if count == 2 else None,
        size_bytes=numbers[0] if word in ("size", "other") else 0,
        mount_bytes=numbers[0] if word == "statfs" else None,
    )
    number = _errno(fields[2]) if len(fields) == 3 else None
    if rest is None or rest == "!absent":
        return Entry(stat=stat, fails=rest is not None, errno=number)
    content = parse_entry(rest).content if rest.startswith("!hex ") else rest.encode()
    return Entry(stat=stat, content=content, errno=number)


def format_entry(entry: Entry) -> str:
    """The text that `parse_entry` reads as `entry`."""
    opened = "" if entry.errno is None else f" {errors.errorcode.get(entry.errno, entry.errno)}"
    content = entry.content
    if entry.link is not None:
        return f"!link {entry.link}"
    if content is None and entry.stat is None:
        return f"!absent{opened}"
    body = ("!absent" if entry.fails else None) if content is None else _body(content)
    if content is not None and entry in (Entry(content=content), plain(content)):
        return body or ""
    stat = entry.stat or FileStat(kind="file", mode=0o644, uid=0, gid=0, size_bytes=len(content or b""))
    return f"!{_head(stat)} {stat.mode:04o} {stat.uid}:{stat.gid}{opened}" + ("" if body is None else f"\n{body}")


def parse_command(text: str) -> CommandResult:
    """The result that `text` stands for: stdout, after an optional first line `!rc=N`, `!timeout` or `!missing`.

    What follows a line `!stderr` went to stderr.
    """
    match = _COMMAND.match(text)
    stdout, _, stderr = (text[match.end() :] if match else text).partition(_STDERR)
    if match and match[1]:
        return CommandResult(status="missing")
    if match and match[2]:
        return CommandResult(status="timeout", stdout=stdout, stderr=stderr)
    return CommandResult(status="exited", returncode=int(match[3]) if match else 0, stdout=stdout, stderr=stderr)


def format_command(result: CommandResult) -> str:
    """The text that `parse_command` reads as `result`."""
    if result.status == "missing":
        return "!missing"
    head = f"!rc={result.returncode}\n" if result.status == "exited" else "!timeout\n"
    plainly = result.returncode == 0 and not result.stdout.startswith("!")
    return ("" if plainly else head) + result.stdout + (f"{_STDERR}{result.stderr}" if result.stderr else "")


def resolve(links: Mapping[str, str], path: str) -> str:
    """Where absolute `path` leads when `links` are the only symbolic links; a loop ends where it stands."""
    done, rest, hops = "/", path.split("/"), _MAX_LINKS
    while rest and path.startswith("/"):
        part = rest.pop(0)
        here = posixpath.join(done, part)
        if part == "..":
            done = posixpath.dirname(done)
        elif here in links and hops:
            hops -= 1
            rest = links[here].split("/") + rest
            done = "/" if links[here].startswith("/") else done
        elif part not in ("", "."):
            done = here
    return done if path.startswith("/") else path


def _head(stat: FileStat) -> str:
    if stat.device is not None:
        return f"{'chr' if stat.kind == 'char' else 'blk'} {stat.device[0]}:{stat.device[1]}"
    if stat.kind == "dir":
        return "dir" if stat.mount_bytes is None else f"statfs {stat.mount_bytes}"
    return f"{'size' if stat.kind == 'file' else 'other'} {stat.size_bytes}"


def _body(content: bytes) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "!"
    return f"!hex {content.hex()}" if text.startswith("!") else text


def _errno(word: str) -> int:
    number = getattr(errors, word, None) if word.startswith("E") else _numbers(word)[0]
    if not isinstance(number, int):
        raise ValueError(f"{word[:20]!r} is not an errno")  # noqa: TRY004 - a value of a document
    return number


def _numbers(text: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[0-9]{1,19}(:[0-9]{1,19})?", text):
        raise ValueError(f"{text[:40]!r} is not a number, nor two")
    return tuple(int(part) for part in text.split(":"))
