"""The ROCm runtime, libamd_smi and pyamdgpuinfo through the real loader, ctypes and child process."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.native.build import build
from tests.unit.vendors.amd.hosts import CARD, KFD, XTX, without
from vllm_probe.core import codec
from vllm_probe.core.device import Device
from vllm_probe.core.errors import LibraryTimeout, LibraryUnavailable
from vllm_probe.core.scene import Scene
from vllm_probe.core.system import CommandResult
from vllm_probe.core.values import JsonValue
from vllm_probe.host.local import LocalHost
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.amd import asking
from vllm_probe.vendors.amd.probe import probe
from vllm_probe.vendors.amd.rocm_smi import parse_rocm_smi

HERE = Path(__file__).parent
LIB = "vllm_probe.vendors.amd.lib"
BOTH = [
    {"id": "0000:03:00.0", "name": "AMD Radeon RX 7900 XTX"},
    {"id": "0001:83:1e.0", "name": "AMD Radeon RX 7900 XT"},
]


class Machine(ReplayHost):
    """The files of a recording, the libraries of this machine."""

    def isolated(self, function: str, timeout_s: float) -> JsonValue:
        return LocalHost().isolated(function, timeout_s)


def the_card(**facts: Any) -> Device:
    (device,) = probe(Machine(codec.from_json(Scene, {"facts": {"files": CARD | KFD, **facts}}))).devices
    return device


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {}
    for name, options in (("new", ()), ("old", ("-DOLD",)), ("lacking", ("-DNO_NAME", "-DNO_INIT"))):
        folder = tmp_path_factory.mktemp(name)
        build(HERE / "hsa.c", folder / "libhsa-runtime64.so.1", *options)
        build(HERE / "amd_smi.c", folder / "libamd_smi.so", *options)
        folders[name] = folder
    return folders


@pytest.fixture(params=["new"])
def loaded(request: pytest.FixtureRequest, libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries[request.param]))


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("_CHILD_S", "_TOOL_S", "_TOOLS_S"):
        monkeypatch.setattr(asking, limit, 60.0)


def answer(function: str, timeout_s: float = 60) -> Any:
    return LocalHost().isolated(f"{LIB}:{function}", timeout_s)


@pytest.mark.parametrize("loaded", ["new", "old"], indirect=True)
@pytest.mark.usefixtures("loaded")
def test_names_are_read_whatever_the_length_of_the_structure() -> None:
    assert answer("names") == {"status": 0, "devices": BOTH}


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("function", "devices"),
    [
        ("amdsmi_init", []),
        ("amdsmi_get_socket_handles", []),
        ("amdsmi_get_processor_handles", []),
        ("amdsmi_get_gpu_device_bdf", BOTH[:1]),
        ("amdsmi_get_gpu_asic_info", BOTH[:1]),
        ("amdsmi_shut_down", BOTH),
    ],
)
def test_an_error_costs_what_it_is_about(
    function: str, devices: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"FAKE_{function}", "31")
    assert answer("names")["devices"] == devices


@pytest.mark.parametrize("loaded", ["lacking"], indirect=True)
@pytest.mark.usefixtures("loaded")
def test_a_library_without_a_function_names_nothing_and_a_runtime_without_one_does_not_start() -> None:
    assert answer("names") == {"status": 0, "devices": []}
    with pytest.raises(LibraryUnavailable, match="no function hsa_init"):
        answer("runtime")


@pytest.mark.usefixtures("loaded")
def test_a_library_that_crashes_or_hangs_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_amdsmi_init", "crash")
    with pytest.raises(LibraryUnavailable, match="killed by signal 11"):
        answer("names")
    monkeypatch.setenv("FAKE_amdsmi_init", "hang")
    with pytest.raises(LibraryTimeout):
        answer("names", 1.0)


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("fault", ["crash", "hang"])
@pytest.mark.parametrize(
    ("function", "devices"),
    [
        ("amdsmi_get_gpu_device_bdf", [BOTH[0]]),
        ("amdsmi_get_gpu_asic_info", [BOTH[0]]),
        ("amdsmi_shut_down", BOTH),
    ],
)
def test_a_card_over_which_the_library_crashes_or_hangs_leaves_the_others_their_names(
    function: str, devices: list[dict[str, str]], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"FAKE_{function}", fault)
    assert answer("names", 10 if fault == "hang" else 60)["devices"] == devices


@pytest.mark.usefixtures("loaded")
def test_the_runtime_starts_and_the_name_is_exact() -> None:
    device = the_card()
    assert device.usable
    assert device.name == "AMD Radeon RX 7900 XTX"


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("said", "code", "reason"),
    [
        ("4104", "unusable", "hsa_init gives 4104"),
        ("crash", "unusable", "hsa_init was killed by signal 11"),
        ("hang", "unknown", "hsa_init did not return within 1 s"),
    ],
)
def test_a_runtime_that_fails_costs_the_verdict_only(
    said: str, code: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if said == "hang":
        monkeypatch.setattr(asking, "_CHILD_S", 1.0)
    monkeypatch.setenv("FAKE_hsa_init", said)
    device = the_card()
    assert (device.usable, device.verdict.code) == (False, code)
    assert reason in device.verdict.reason
    assert (device.arch, device.memory.reported_bytes) == ("gfx1100", 25753026560)


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("said", ["crash", "hang", "31"])
def test_a_library_of_names_that_fails_costs_the_name_only(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if said == "hang":
        monkeypatch.setattr(asking, "_CHILD_S", 5.0)
    monkeypatch.setenv("FAKE_amdsmi_init", said)
    device = the_card()
    assert (device.usable, device.name) == (True, XTX)


def test_a_file_that_is_no_library_is_broken_and_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libhsa-runtime64.so.1").write_text("no ELF file")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    device = the_card()
    assert device.verdict.code == "unusable"
    assert "the ROCm runtime does not start: " in device.verdict.reason
    assert "libhsa-runtime64.so.1" in device.verdict.reason


CARDS = """
class Card:
    pci_slot = "0000:03:00.0"
    def __getattr__(self, name):
        if name == "query_power":
            return self.refuse
        values = {"query_load": 0.25, "query_temperature": 44.0, "query_sclk": 5e8, "query_mclk": 96e6}
        return lambda: values.get(name, 7)
    def refuse(self):
        raise RuntimeError("unable to read the sensor")
"""


def module(folder: Path, detect: str) -> None:
    package = folder / "pyamdgpuinfo"
    package.mkdir()
    text = f"{CARDS}\ndef detect_gpus():\n    {detect}\n\ndef get_gpu(number):\n    return Card()\n"
    (package / "__init__.py").write_text(text)


def test_pyamdgpuinfo_tells_what_sysfs_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module(tmp_path, "return 1")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    site = {"/usr/lib/python3/site-packages/pyamdgpuinfo/__init__.py": "!size 9"}
    (device,) = probe(Machine(codec.from_json(Scene, {"facts": {"files": CARD | KFD | site}}))).devices
    assert (device.details["utilization"], device.details["temperature_c"]) == (25, 44.0)
    assert device.details["core_clock_mhz"] == 500
    assert device.sources["/details/utilization"] == "pyamdgpuinfo"
    assert device.details["power_w"] is None


def test_pyamdgpuinfo_that_fails_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module(tmp_path, "raise FileNotFoundError(2, 'No such file or directory', '/dev/dri/')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(LibraryUnavailable, match="/dev/dri/"):
        answer("live")


@pytest.mark.parametrize("fault", ["raise RuntimeError('no')", "__import__('os').abort()"])
def test_a_card_that_pyamdgpuinfo_fails_over_leaves_the_others_their_values(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module(tmp_path, "return 2")
    path = tmp_path / "pyamdgpuinfo" / "__init__.py"
    path.write_text(path.read_text().replace("return Card()", f"if number == 0: {fault}\n    return Card()"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    first, second = answer("live")["devices"]
    assert (first, second["utilization"]) == ({}, 25)


def test_pyamdgpuinfo_is_not_asked_about_a_recording() -> None:
    with pytest.raises(LibraryUnavailable, match="reads no recording"):
        ReplayHost(codec.from_json(Scene, {"facts": {}})).isolated(f"{LIB}:live", 1)


@pytest.mark.skipif(Path("/dev/dri").exists(), reason="there is a /dev/dri here")
def test_the_real_pyamdgpuinfo_without_dev_dri_is_an_error_in_words() -> None:
    if find_spec("pyamdgpuinfo") is None and not os.environ.get("REQUIRE_ALL"):
        pytest.skip("pyamdgpuinfo is not installed: pip install pyamdgpuinfo")
    with pytest.raises(LibraryUnavailable, match=r"pyamdgpuinfo: .*/dev/dri"):
        answer("live")


class WithTools(Machine):
    """The programs of this machine too."""

    def run(self, argv: Sequence[str], timeout_s: float, env: Mapping[str, str] | None = None) -> CommandResult:
        return LocalHost().run(argv, timeout_s, env)


TOOL = """#!/bin/sh
{first}
echo 'WARNING: User is missing the following required groups: render'
echo '[{{"gpu": 0, "bus": {{"bdf": "0000:03:00.0"}}, "vram": {{"size": {{"value": 24560, "unit": "MB"}}}}}}]'
"""


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    ("first", "size"),
    [("", 24560 << 20), ("sleep 600", None), ("kill -SEGV $$", None), ("exit 1", None)],
    ids=["answers", "hangs", "crashes", "fails"],
)
def test_a_tool_costs_at_most_its_timeout_and_its_own_values(
    first: str, size: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "amd-smi"
    tool.write_text(TOOL.format(first=first))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    if "sleep" in first:
        monkeypatch.setattr(asking, "_TOOL_S", 1.0)
    files = without(CARD, "mem_info") | without(KFD, "mem_banks")
    (device,) = probe(WithTools(codec.from_json(Scene, {"facts": {"files": files}}))).devices
    assert device.memory.reported_bytes == size
    assert (device.usable, device.arch) == (True, "gfx1100")


@pytest.fixture
def rocm_smi() -> CommandResult:
    result = LocalHost().run(asking.ROCM_SMI, 60)
    if result.status == "missing" and not os.environ.get("REQUIRE_ALL"):
        pytest.skip("rocm-smi is not installed: apt-get install -y rocm-smi")
    return result


@pytest.mark.skipif(Path("/sys/module/amdgpu").exists(), reason="the driver is loaded here")
def test_debians_rocm_smi_without_a_driver_lists_nothing_though_it_ends_well(rocm_smi: CommandResult) -> None:
    assert (rocm_smi.status, rocm_smi.returncode) == ("exited", 0)
    assert "not initialized" in rocm_smi.stdout + rocm_smi.stderr
    assert parse_rocm_smi(rocm_smi.stdout) == parse_rocm_smi(rocm_smi.stderr) == []


def test_this_machine_is_probed_without_a_traceback() -> None:
    command = [sys.executable, "-c", "from vllm_probe.host.local import LocalHost as H; "]
    command[-1] += "from vllm_probe.vendors.amd.probe import probe; print(len(probe(H()).devices))"
    ended = subprocess.run(command, capture_output=True, text=True, timeout=250, check=True)
    assert ended.stdout.strip().isdigit()
    assert ended.stderr == ""
