"""The texts that stand for files and commands, both ways."""

import errno
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.core.system import CommandResult, FileKind, FileStat
from vllm_probe.host.entries import Entry, format_command, format_entry, parse_command, parse_entry, resolve

NUMBERS = st.integers(0, 10**9)


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    kind: FileKind = draw(st.sampled_from(get_args(FileKind)))
    stat = FileStat(
        kind=kind,
        mode=draw(st.integers(0, 0o7777)),
        uid=draw(NUMBERS),
        gid=draw(NUMBERS),
        device=draw(st.tuples(NUMBERS, NUMBERS)) if kind in ("char", "block") else None,
        size_bytes=draw(NUMBERS) if kind in ("file", "other") else 0,
        mount_bytes=draw(st.none() | NUMBERS) if kind == "dir" else None,
    )
    content = None if kind == "dir" else draw(st.none() | st.binary() | st.text().map(str.encode))
    found = Entry(
        stat=stat, content=content, errno=draw(st.none() | st.sampled_from(sorted(errno.errorcode)) | st.just(0))
    )
    links = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)
    return draw(st.just(found) | links.map(lambda link: Entry(link=link)) | st.just(Entry(errno=errno.EACCES)))


@given(entries())
def test_an_entry_is_read_as_it_was_written(entry: Entry) -> None:
    assert parse_entry(format_entry(entry)) == entry


@given(st.text() | st.text(alphabet="!abcdefhilnstrxz 0127:\nE").map(lambda text: f"!{text}"))
def test_any_text_is_an_entry_or_a_value_error(text: str) -> None:
    try:
        parse_entry(text)
    except ValueError:
        assert text.startswith("!") or not text.isascii()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("!chr 261:0 0660 0:992 EACCES", ("char", 0o660, 992, (261, 0), errno.EACCES)),
        ("!chr 10:125 0666 0:0", ("char", 0o666, 0, (10, 125), None)),
        ("!dir", ("dir", 0o755, 0, None, None)),
        ("!size 900000", ("file", 0o644, 0, None, None)),
        ("!hex 0600000001", ("file", 0o644, 0, None, None)),
    ],
)
def test_a_directive_says_what_the_file_is(text: str, expected: tuple[object, ...]) -> None:
    entry = parse_entry(text)
    assert entry.stat is not None
    assert (entry.stat.kind, entry.stat.mode, entry.stat.gid, entry.stat.device, entry.errno) == expected


@pytest.mark.parametrize(
    "text", ["!abset", "!chr 1 0666 0:0", "!chr", "!size -1", "!hex 0g", "!dir 0666", "!absent ENO", "!link"]
)
def test_a_malformed_directive_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_entry(text)


def test_a_device_can_hold_text() -> None:
    entry = parse_entry("!chr 1:11 0644 0:4\nNVRM: failed\n!dir")
    assert entry.content == b"NVRM: failed\n!dir"


OUTPUT = st.text().filter(lambda text: "!stderr" not in text)


@given(st.integers(-64, 255), OUTPUT, OUTPUT)
def test_a_command_is_read_as_it_was_written(returncode: int, stdout: str, stderr: str) -> None:
    result = CommandResult(status="exited", returncode=returncode, stdout=stdout, stderr=stderr)
    assert parse_command(format_command(result)) == result


def test_a_command_may_be_missing_hang_or_fail() -> None:
    assert parse_command("!missing").status == "missing"
    assert parse_command("!timeout").status == "timeout"
    assert parse_command("!rc=9\nno driver\n") == CommandResult(status="exited", returncode=9, stdout="no driver\n")


def test_links_are_followed_through_folders_and_upwards() -> None:
    links = {"/sys/class/drm/card0": "../../devices/pci0/0000:03:00.0/drm/card0", "/a": "/b", "/b": "a"}
    assert resolve(links, "/sys/class/drm/card0/../../vendor") == "/sys/devices/pci0/0000:03:00.0/vendor"
    assert resolve(links, "/a/x").startswith("/")
