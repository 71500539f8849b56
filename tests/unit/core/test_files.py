"""Files are read within bounds and written in one step."""

import json
import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.core.errors import InvalidJson, UnreadableFile, UnwritableOutput
from vllm_probe.core.files import parse_json, read_document, read_json, require_writable, write_private


def test_a_write_replaces_the_file_privately_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "capability.json"
    target.write_text("old")
    write_private(target, "né\n")
    assert target.read_bytes() == "né\n".encode()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [target]


def test_a_device_is_written_to_and_stays_a_device() -> None:
    reader, writer = os.openpty()
    try:
        terminal = Path(os.ttyname(writer))
        require_writable(terminal)
        write_private(terminal, "{}")
        assert os.read(reader, 16) == b"{}"
        assert terminal.is_char_device()
    finally:
        os.close(reader)
        os.close(writer)


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    link, target = tmp_path / "link.json", tmp_path / "elsewhere" / "target.json"
    target.parent.mkdir()
    target.write_text("old")
    link.symlink_to(target)
    write_private(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_an_absent_folder_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UnwritableOutput, match="No such file"):
        write_private(tmp_path / "no" / "x.json", "")


def test_a_folder_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(UnwritableOutput):
        write_private(tmp_path / "out", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * 33])
def test_what_is_not_a_document_is_unreadable(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(UnreadableFile):
        read_document(path, limit_bytes=32)


def test_a_folder_and_an_absent_file_are_unreadable(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UnreadableFile):
            read_json(path)


def test_a_pipe_is_unreadable_and_nobody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableFile, match="is a pipe or device"):
        read_document(tmp_path / "pipe")


def test_a_failed_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        write_private(tmp_path / "x.json", "\ud800")
    assert list(tmp_path.iterdir()) == []


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert parse_json('["\\ud83d\\ude00"]', "here") == ["\U0001f600"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "NaN", '{"a":1,"a":2}', "[" * 100_000, "1" * 10_000, '"\\ud800"', '{"\\uDFFF": 1}'],
)
def test_text_that_no_tool_would_write_is_not_json(text: str) -> None:
    with pytest.raises(InvalidJson):
        parse_json(text, "here")


def test_numbers_that_are_not_finite_are_taken_where_they_may_be() -> None:
    assert parse_json("[Infinity, -Infinity]", "here", is_finite=False) == [float("inf"), float("-inf")]
    with pytest.raises(InvalidJson, match="Infinity is not a JSON number"):
        parse_json("[Infinity]", "here")


@given(st.text(max_size=60))
def test_any_text_gives_a_value_or_the_typed_error(text: str) -> None:
    with suppress(InvalidJson):
        json.dumps(parse_json(text, "here"), ensure_ascii=False, allow_nan=False).encode()


def test_a_name_of_ours_is_replaced_whatever_stands_there(tmp_path: Path) -> None:
    victim, link, pipe = tmp_path / "victim", tmp_path / "link", tmp_path / "pipe"
    victim.write_text("theirs")
    link.symlink_to(victim)
    os.mkfifo(pipe)
    for path in (link, pipe):
        write_private(path, "ours", is_ours=True)
        assert path.is_file()
        assert not path.is_symlink()
        assert path.read_text() == "ours"
    assert victim.read_text() == "theirs"
