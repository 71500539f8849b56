"""Compiled code is loaded from a folder of our own and exactly as it was left, or not at all."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from vllm_probe.core.system import FileStat
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.torchbase.keeping import key_of, open_folder, seal

HOST = LocalHost()


class Foreign(LocalHost):
    """A machine where every folder belongs to somebody else."""

    def stat(self, path: str) -> FileStat | None:
        found = super().stat(path)
        return found and replace(found, uid=found.uid + 1)


def test_a_key_changes_with_every_fact_and_not_with_their_order() -> None:
    facts = {"torch": "2.13", "compiler": "g++ 13"}
    assert key_of(facts) == key_of(dict(reversed(facts.items())))
    assert len({key_of(facts), key_of(facts | {"torch": "2.14"}), key_of(facts | {"device": "avx2"})}) == 3


def test_what_was_sealed_is_found_again_in_a_private_folder(tmp_path: Path) -> None:
    place = open_folder(HOST, tmp_path / "cache", "k")
    assert (place.path, place.kept) == (tmp_path / "cache" / "k", True)
    assert place.path.stat().st_mode & 0o777 == 0o700
    (place.path / "sub").mkdir()
    (place.path / "sub" / "kernel.so").write_bytes(b"code")
    seal(place.path)
    assert open_folder(HOST, tmp_path / "cache", "k") == place
    assert (place.path / "sub" / "kernel.so").read_bytes() == b"code"
    assert not [*open_folder(HOST, tmp_path / "cache", "other").path.iterdir()]


@pytest.mark.parametrize("damage", ["changed", "added", "removed", "unsealed", "seal", "nested", "pipe"])
def test_what_is_not_as_it_was_left_is_emptied(tmp_path: Path, damage: str) -> None:
    tmp_path.chmod(0o700)
    folder = open_folder(HOST, tmp_path, "k").path
    kernel = folder / "kernel.so"
    kernel.write_bytes(b"code")
    if damage == "unsealed":
        os.utime(kernel, (0, 0))
    else:
        seal(folder)
    if damage == "changed":
        kernel.write_bytes(b"evil")
    elif damage == "added":
        (folder / "more.so").write_bytes(b"code")
    elif damage == "removed":
        kernel.unlink()
    elif damage == "seal":
        (folder / "seal.json").write_text("{")
    elif damage == "nested":
        (folder / "seal.json").write_text("[" * 100_000)
    elif damage == "pipe":
        (folder / "seal.json").unlink()
        os.mkfifo(folder / "seal.json")
    place = open_folder(HOST, tmp_path, "k")
    assert place.kept
    assert not [*place.path.iterdir()]


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o702])
def test_a_folder_that_is_open_to_others_is_not_used(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    place = open_folder(HOST, tmp_path, "k")
    assert not place.kept
    assert f"has mode {mode:04o}, open to others" in place.note
    assert tmp_path not in place.path.parents
    assert place.path.stat().st_mode & 0o777 == 0o700
    place.path.rmdir()


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    place = open_folder(Foreign(), tmp_path, "k")
    assert not place.kept
    assert "belongs to user" in place.note
    place.path.rmdir()


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = open_folder(HOST, tmp_path / "file", "k")
    assert place.note.startswith("not kept: cannot write")
    place.path.rmdir()
    without = open_folder(HOST, None, "k")
    assert (without.kept, without.note) == (False, "not kept")
    without.path.rmdir()


def test_what_another_process_compiles_at_the_moment_is_left_alone(tmp_path: Path) -> None:
    folder = open_folder(HOST, tmp_path, "k").path
    (folder / "kernel.so").write_bytes(b"code")
    place = open_folder(HOST, tmp_path, "k")
    assert not place.kept
    assert place.note == f"not kept: another process compiles into {folder}"
    assert (folder / "kernel.so").exists()
