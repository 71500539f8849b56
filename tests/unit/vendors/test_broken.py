from pathlib import Path
from shutil import copy

import pytest

from tests.unit.detect.scenes import ROOT
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.broken import broken_descriptors
from vllm_probe.vendors.cpu import PLUGIN
from vllm_probe.vendors.registry import PortableDeviceManager


def test_what_a_user_put_on_the_search_path_and_cannot_be_read_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "my cards"
    named.mkdir()
    monkeypatch.setenv("VLLM_PROBE_CAPABILITY_PATH", str(named))
    for name in ("HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    copy(ROOT / "capabilities" / "a100-sxm-80gb.capability.json", named)
    manager = PortableDeviceManager(LocalHost(), (PLUGIN,))
    assert list(broken_descriptors(manager, "sha256:0")) == []
    (tmp_path / "capability.json").write_text('{"a"')
    (named / "x.capability.json").write_text('{"schema_version": "2.0"}')
    (named / "y.capability.json").mkdir()  # root may read every file, and nobody a folder
    first, second, third = broken_descriptors(manager, "sha256:0")
    assert (first.id, first.severity, first.device) == ("CAP-01", "degrades", None)
    assert first.evidence == ("capability.json: Expecting ':' delimiter at line 1 column 5",)
    assert first.fix[0].command == "vllm-probe capability validate capability.json"
    assert second.evidence == (f"{named}/x.capability.json: (top level): 'device_type' is missing",)
    assert second.fix[0].command == f"vllm-probe capability validate '{named}/x.capability.json'"
    assert third.evidence[0].startswith(f"cannot read {named}/y.capability.json")
