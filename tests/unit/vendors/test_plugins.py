import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vllm_probe.core.errors import BadUsage
from vllm_probe.vendors.plugins import RefusedPlugin, discover_plugins

GOOD = """
from vllm_probe.core.plugin import VendorPlugin
PLUGIN = VendorPlugin(api_version={version}, name="{name}", device_types=("{name}",), probe="{probe}")
def probe(host): ...
"""
Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a wheel with one plug-in on the path, as pip leaves it there."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = set(sys.modules)

    def add(name: str, source: str) -> None:
        (tmp_path / f"{name}_probe.py").write_text(source, encoding="utf-8")
        info = tmp_path / f"{name}_dist-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-dist\nVersion: 1.0\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(
            f"[vllm_probe.vendors]\n{name} = {name}_probe:PLUGIN\n", encoding="utf-8"
        )
        importlib.invalidate_caches()

    yield add
    for module in set(sys.modules) - modules:
        if module.endswith("_probe"):
            del sys.modules[module]


def good(name: str, version: int = 1, probe: str | None = None) -> str:
    return GOOD.format(name=name, version=version, probe=probe or f"{name}_probe:probe")


def the_refused(allowed: str | None = None) -> RefusedPlugin:
    (refused,) = discover_plugins(allowed).refused
    return refused


def names(allowed: str | None) -> list[str]:
    return [plugin.name for plugin in discover_plugins(allowed).plugins]


def test_every_folder_but_null_is_loaded_by_default() -> None:
    assert "cpu" in names(None)
    assert "null" not in names(None)
    assert names(" ") == names(None)
    assert names("null") == ["null"]
    assert names("null, cpu") == ["cpu", "null"]


def test_what_vendors_share_is_no_vendor() -> None:
    assert {"torchbase", "conformance"}.isdisjoint(names(None))
    assert discover_plugins(None).refused == ()


def test_a_plug_in_of_another_wheel_is_found_after_ours(install: Install) -> None:
    install("acme", good("acme"))
    found = discover_plugins(None)
    assert [plugin.name for plugin in found.plugins][-1] == "acme"
    assert (found.distributions["cpu"], found.distributions["acme"]) == ("vllm-probe", "acme-dist")
    assert found.refused == ()
    assert names("acme") == ["acme"]


def test_a_plug_in_that_is_not_allowed_is_not_imported(install: Install) -> None:
    install("acme", "raise SystemExit('imported')")
    assert names("cpu") == ["cpu"]
    assert discover_plugins("cpu").refused == ()


def test_an_unknown_name_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(BadUsage, match="VLLM_PROBE_PLUGINS names 'cpus'") as caught:
        discover_plugins("cpus,null")
    assert {"cpu", "null", "nvidia"} <= set(caught.value.hint.removeprefix("the plug-ins here are ").split(", "))


@pytest.mark.parametrize(
    ("source", "row", "reason"),
    [
        (good("acme", version=7), "PLG-01", "is for plug-in contract 7, this release has 1"),
        ("raise OSError('no such driver')", "PLG-02", "raised OSError: no such driver"),
        ("import sys; sys.exit(3)", "PLG-02", "raised SystemExit: 3"),
        ("raise KeyboardInterrupt", "PLG-02", "raised KeyboardInterrupt"),
        ("class Odd(BaseException): ...\nraise Odd(1)", "PLG-02", "raised Odd: 1"),
        (good("acme").replace('probe="acme_probe:probe"', "probe=5"), "PLG-04", "/probe: is a number, not a string"),
        (good("acme").replace('("acme",)', "(1,)"), "PLG-04", "/device_types/0: is a number, not a string"),
        ("PLUGIN = 5", "PLG-04", "is int, not a VendorPlugin"),
        (good("emca"), "PLG-04", "calls itself 'emca' with the device types ('emca',)"),
        (good("acme", probe="acme_probe"), "PLG-04", "names 'acme_probe', which is not here"),
        (good("acme", probe="nowhere.at.all:probe"), "PLG-04", "names 'nowhere.at.all:probe', which is not here"),
    ],
)
def test_a_bad_plug_in_is_refused_by_name_and_disturbs_nothing(
    install: Install, source: str, row: str, reason: str
) -> None:
    install("acme", source)
    refused = the_refused()
    assert (refused.name, refused.distribution, refused.id, refused.reason) == ("acme", "acme-dist", row, reason)
    assert "cpu" in names(None)


@pytest.mark.parametrize(
    ("source", "row", "reason"),
    [
        ("1 / 0", "PLG-02", "raised ZeroDivisionError: division by zero"),
        ("import torch", "PLG-03", "imports torch when it is registered"),
    ],
)
def test_the_package_around_a_probe_is_imported_with_the_same_care(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, row: str, reason: str
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    (tmp_path / "around_probe").mkdir()
    (tmp_path / "around_probe" / "__init__.py").write_text(source, encoding="utf-8")
    install("acme", good("acme", probe="around_probe.inner:probe"))
    assert (the_refused().id, the_refused().reason) == (row, reason)


def test_what_a_plug_in_prints_stays_out_of_the_document(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install("acme", f"print('hello')\n{good('acme')}")
    assert names("acme") == ["acme"]
    assert capsys.readouterr() == ("", "hello\n")


def test_what_a_plug_in_raised_is_kept_with_its_traceback(install: Install) -> None:
    install("acme", "def probe():\n    1 / 0\nprobe()\n")
    assert "acme_probe.py" in the_refused().evidence[0]


def test_a_name_can_be_taken_once(install: Install) -> None:
    install("cpu", good("cpu"))
    assert the_refused().reason == "its name is taken by a plug-in that was found before"
    assert "vllm_probe.vendors.cpu.probe:probe" in {plugin.probe for plugin in discover_plugins(None).plugins}


@pytest.mark.parametrize(
    "import_it", ["import torch", "import torch.nn", "try:\n    import torch\nexcept ImportError:\n    torch = None"]
)
def test_torch_is_refused_at_registration_before_it_is_loaded(
    install: Install, monkeypatch: pytest.MonkeyPatch, import_it: str
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    install("acme", f"{import_it}\n{good('acme')}")
    install("emca", f"{import_it}\n{good('emca')}")
    refused = discover_plugins(None).refused
    assert [(plugin.name, plugin.id) for plugin in refused] == [("acme", "PLG-03"), ("emca", "PLG-03")]
    assert "torch" not in sys.modules
