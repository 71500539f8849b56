"""`bench --device all`: a device that cannot be measured costs no other."""

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from vllm_probe import api
from vllm_probe.core.errors import DeviceHung

TRIO = """
from dataclasses import replace

from vllm_probe.core.errors import DeviceHung
from vllm_probe.core.plugin import ProbeResult, VendorPlugin
from vllm_probe.vendors.null.adapter import NullAdapter
from vllm_probe.vendors.null.probe import probe as null


def probe(host):
    (device,) = null(host).devices
    devices = [replace(device, id=f"trio{i}", vendor="trio", adapter="trio") for i in range(3)]
    return ProbeResult(devices=tuple(devices))


class Adapter(NullAdapter):
    made = 0

    def __init__(self, host):
        super().__init__(host)
        Adapter.made += 1
        if Adapter.made == 2 and MADE:
            raise MADE

    def _open(self):
        raised = {"trio0": FAULT}.get(self.device.id)
        if raised:
            raise raised


PLUGIN = VendorPlugin(
    api_version=1, name="trio", device_types=("trio",), probe=f"{__name__}:probe", adapter=f"{__name__}:Adapter"
)
"""


def install(site: Path, monkeypatch: pytest.MonkeyPatch, fault: str, made: str = "None") -> None:
    """A distribution with three devices; opening the first raises `fault`, making the adapter of the second `made`."""
    monkeypatch.delitem(sys.modules, "trio_plugin", raising=False)
    info = site / "trio-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: trio\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vllm_probe.vendors]\ntrio = trio_plugin:PLUGIN\n")
    (site / "trio_plugin.py").write_text(TRIO.replace("FAULT", fault).replace("MADE", made))
    monkeypatch.syspath_prepend(site)


def test_an_adapter_that_cannot_be_made_costs_no_other_device(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch, "None", 'RuntimeError("no context")')
    ended = cli("bench", "--device", "all", "--only", "memory", "--emit", "out", plugins="trio")
    assert (ended.code, ended.error) == (3, "device-unavailable")
    assert "1 of 3 devices were not measured: trio1 cannot be opened: RuntimeError: no context" in ended.err
    assert sorted(path.name for path in Path("out").iterdir()) == ["trio0.capability.json", "trio2.capability.json"]


def test_a_device_that_does_not_open_costs_no_other(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", monkeypatch, 'RuntimeError("driver says no")')
    command = ("bench", "--device", "all", "--only", "memory")
    ended = cli(*command, "--emit", "out", plugins="trio")
    assert (ended.code, ended.error) == (3, "device-unavailable")
    assert "1 of 3 devices were not measured: trio0 cannot be opened: RuntimeError: driver says no" in ended.err
    assert "Traceback" not in ended.err
    assert sorted(path.name for path in Path("out").iterdir()) == ["trio1.capability.json", "trio2.capability.json"]
    assert "trio1" in ended.out
    printed = cli(*command, "--json", plugins="trio")
    assert (printed.code, [each["device"]["id"] for each in printed.json()]) == (3, ["trio1", "trio2"])
    assert cli("bench", "--device", "trio0", plugins="trio").error == "device-unavailable"


def test_what_is_measured_beside_a_device_that_hangs_is_doubted(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch, 'DeviceHung("trio0: it did not end", hint="wait")')
    monkeypatch.setenv("VLLM_PROBE_PLUGINS", "trio")
    with pytest.raises(DeviceHung, match="1 of 3 devices were not measured: trio0: it did not end") as raised:
        api.bench(device="all", only=frozenset({"memory"}), output=Path("out"))
    assert [each.device.id for each in raised.value.measured] == ["trio1", "trio2"]
    about = json.loads(Path("out/trio2.capability.json").read_text())["measurements"]["/memory/read_gb_s"]
    assert "trio0 hangs in the same process" in about["reason"]
    assert about["confidence"] != "high"


def test_a_folder_that_takes_not_all_documents_is_an_error_before_anything_is_measured(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch, "None")
    Path("out/trio2.capability.json").mkdir(parents=True)
    ended = cli("bench", "--device", "all", "--only", "memory", "--emit", "out", plugins="trio")
    assert (ended.code, ended.error) == (2, "unwritable-output")
    assert [path.name for path in Path("out").iterdir()] == ["trio2.capability.json"]
