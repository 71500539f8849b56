"""What a recording keeps, and what it leaves out."""

import ctypes
import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.core import codec, schema
from vllm_probe.core.errors import LibraryTimeout, UnwritableOutput
from vllm_probe.core.scene import Facts, LibraryFacts, Scene
from vllm_probe.host.record import RecordingHost, write_recording
from vllm_probe.host.replay import ReplayHost, load_host
from vllm_probe.host.scrub import Scrubber

WREN = {"HOME": "/scratch/wren", "USER": "wren"}


def recorder(**facts: object) -> RecordingHost:
    return RecordingHost(ReplayHost(Scene(facts=codec.from_json(Facts, codec.to_json(facts)))))


def again(host: RecordingHost) -> ReplayHost:
    return ReplayHost(codec.from_json(Scene, json.loads(codec.dumps(host.scene()))))


NOTHING_PERSONAL = Scrubber([], [], [])
CONTENTS = (st.binary(max_size=40) | st.text().map(str.encode)).filter(lambda data: NOTHING_PERSONAL.data(data) == data)


@given(st.lists(CONTENTS, min_size=1, max_size=4))
def test_any_content_is_read_again_as_it_was(contents: list[bytes]) -> None:
    host = recorder(files={f"/f{i}": f"!hex {content.hex()}" for i, content in enumerate(contents)})
    for i in range(len(contents)):
        host.read_bytes(f"/f{i}")
    assert [again(host).read_bytes(f"/f{i}") for i in range(len(contents))] == contents


def test_the_calls_of_two_devices_are_told_apart() -> None:
    calls = {
        "handle(0)": {"status": 0, "outs": ["10" * 8]},
        "handle(1)": {"status": 0, "outs": ["20" * 8]},
        "temperature(1157442765409226768)": {"status": 3, "outs": ["00000000"]},
        "hang": "timeout",
    }
    host = recorder(libs={"libx.so": codec.to_json(LibraryFacts(path="/lib/libx.so", calls=calls))})

    def ask(source: RecordingHost | ReplayHost) -> list[object]:
        library = source.library("libx.so")
        answers: list[object] = [library.path]
        for index in (0, 1):
            handle = ctypes.c_void_p()
            answers += [library.call("handle", index, ctypes.byref(handle)), handle.value]
        answers.append(library.call("temperature", 0x1010101010101010, ctypes.byref(ctypes.c_int())))
        with pytest.raises(LibraryTimeout):
            library.call("hang", 1)
        return answers

    assert ask(host) == ask(again(host)) == ["/lib/libx.so", 0, 0x1010101010101010, 0, 0x2020202020202020, 3]


def test_what_a_library_says_is_scrubbed_too() -> None:
    raw = "ff1122334455667788990011223344aa"
    text = b"GPU-12345678-1234-1234-1234-123456789abc".hex() + "00" * 8
    calls = {
        "nvmlDeviceGetUUID()": {"status": 0, "outs": [text]},
        "nvmlDeviceGetSerial()": {"status": 0, "outs": [b"132022000042".hex() + "00" * 4]},
        "cuDeviceGetUuid()": {"status": 0, "outs": [raw]},
    }
    host = recorder(libs={"libx.so": {"calls": calls}})
    for symbol, size in {"nvmlDeviceGetUUID": 48, "nvmlDeviceGetSerial": 16, "cuDeviceGetUuid": 16}.items():
        host.library("libx.so").call(symbol, ctypes.create_string_buffer(size))
    kept, library = codec.dumps(host.scene()), again(host).library("libx.so")
    assert raw not in kept
    assert text[:80] not in kept
    assert b"132022000042".hex() not in kept
    buffer = ctypes.create_string_buffer(48)
    library.call("nvmlDeviceGetUUID", buffer)
    assert buffer.value == b"GPU-00000000-0000-0000-0000-000000000001"


def test_nothing_personal_is_written(tmp_path: Path) -> None:
    host = recorder(
        files={
            "/proc/sys/kernel/hostname": "kestrel\n",
            "/scratch/wren/venv/x": "built by wren on kestrel",
            "/sys/class/net/eth0/address": "3c:ec:ef:12:34:56\n",
            "/sys/devices/gpu/unique_id": "c0ffee1234567890\n",
            "/link": "!link /scratch/wren/venv",
        },
        commands={"ls /scratch/wren": "kestrel:/wren 10.20.30.40"},
        env=WREN | {"HF_HUB": "x", "WANDB_API_KEY": "topsecret", "VIRTUAL_ENV": "/scratch/wren/venv"},
    )
    for path in ("/scratch/wren/venv/x", "/sys/class/net/eth0/address", "/sys/devices/gpu/unique_id"):
        host.read_text(path)
    host.readlink("/link")
    host.glob("/scratch/wren/*")
    host.run(["ls", "/scratch/wren"], 1.0)
    for name in ("WANDB_API_KEY", "VIRTUAL_ENV", "XDG_STATE_HOME"):
        host.env(name)
    text = write_recording(host, tmp_path / "new" / "folder").read_text()
    for personal in ("wren", "kestrel", "scratch", "3c:ec", "c0ffee", "10.20", "topsecret", "XDG_STATE_HOME"):
        assert personal not in text
    replayed = load_host(tmp_path / "new" / "folder")
    assert replayed.env("VIRTUAL_ENV") == "/home/user/venv"
    assert replayed.read_text("/home/user/venv/x") == "built by user on host"
    assert replayed.glob("/home/user/*") == ("/home/user/venv",)


def test_whoever_has_an_account_or_called_sudo_is_not_named_in_a_path(tmp_path: Path) -> None:
    host = recorder(
        files={
            "/etc/passwd": "root:x:0:0::/root:/bin/sh\nlinnet:x:1001:1001:L. Linnet:/data/linnet:/bin/sh\nbroken\n",
            "/data/linnet/venv": "!dir",
            "/srv/siskin/venv": "!dir",
        },
        env={"HOME": "/root", "USER": "root", "SUDO_USER": "siskin"},
    )
    for path in ("/data/linnet/venv", "/srv/siskin/venv"):
        host.exists(path)
    text = write_recording(host, tmp_path).read_text()
    assert "/data/user/venv" in text
    assert "/srv/user/venv" in text
    assert "passwd" not in text


def test_a_recording_validates_and_is_private(tmp_path: Path) -> None:
    host = recorder(files={"/a": "b"}, env=WREN)
    host.read_text("/a")
    host.env("UNSET")
    path = write_recording(host, tmp_path)
    assert schema.violations("scene", json.loads(path.read_text())) == ()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_host(path).env("UNSET") is None


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnwritableOutput, match="file"):
        write_recording(recorder(), tmp_path / "file" / "below")


def test_recording_a_recording_changes_nothing() -> None:
    host = recorder(
        files={"/a": "GPU-12345678-1234-1234-1234-123456789abc serial: 77665544 10.1.2.3 aa:bb:cc:dd:ee:ff"}
    )
    host.read_text("/a")
    once = again(host)
    twice = RecordingHost(once)
    assert twice.read_text("/a") == once.read_text("/a")
    assert again(twice).read_text("/a") == once.read_text("/a")


def test_a_file_that_is_called_version_holds_no_address() -> None:
    kept = ("/sys/module/neuron/version", "/opt/npu/version.info", "/sys/class/accel/accel0/device/fw_version")
    files = dict.fromkeys((*kept, "/etc/resolv.conf", "/sys/version/peer"), "10.26.5.0\n")
    host = recorder(files=files)
    for path in files:
        host.read_text(path)
    replayed = again(host)
    assert {path for path in files if replayed.read_text(path) == "10.26.5.0\n"} == set(kept)
