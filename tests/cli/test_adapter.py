"""`adapter check` and `adapter new`: the suite from the command line, and a package that passes it."""

import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import HOSTS, Cli
from vllm_probe.core.extras import extra_command

BROKEN = """
from vllm_probe.core.plugin import ProbeResult
from vllm_probe.vendors.cpu.adapter import CpuAdapter
from vllm_probe.vendors.cpu.probe import probe as probe_cpu
from dataclasses import replace

def probe(host):
    (cpu,) = probe_cpu(host).devices
    return ProbeResult(devices=(replace(cpu, id="broken:0", vendor="broken", adapter="broken"),))

class BrokenAdapter(CpuAdapter):
    def _rope(self, heads, cosines, sines, implementation):
        return super()._rope(heads, cosines, -sines, implementation)

    def implementations(self, primitive, dtype):
        return super().implementations(primitive, dtype)[:1] if primitive == "rope" and dtype == "fp32" else ()
"""
PLUGIN = """
from vllm_probe.core.plugin import API_VERSION, VendorPlugin
PLUGIN = VendorPlugin(
    api_version={version}, name="{name}", device_types=("{name}",), probe="{name}_code:probe",
    adapter="{name}_code:{adapter}",
)
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a wheel with one plug-in on the path, as pip leaves it there."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    def add(name: str, code: str, adapter: str, version: int = 1) -> None:
        (site / f"{name}_plugin.py").write_text(PLUGIN.format(name=name, adapter=adapter, version=version))
        (site / f"{name}_code.py").write_text(code)
        info = site / f"{name}_dist-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-dist\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[vllm_probe.vendors]\n{name} = {name}_plugin:PLUGIN\n")
        importlib.invalidate_caches()

    return add


def test_the_scripted_device_is_checked_where_it_is_named(cli: Cli) -> None:
    ended = cli("adapter", "check", "null", "--json", plugins="")
    report = ended.json()
    assert ended.code == 0
    assert (report["device"], report["adapter"], report["failed"]) == ("null0", "NullAdapter", 0)
    assert report["passed"] + report["skipped"] == len(report["results"])
    assert {result["name"] for result in report["results"]} >= {"bring-up: opens", "linear: bf16 scripted"}
    assert cli("adapter", "check", "null", "--device", "null0", plugins="null").code == 0


def test_the_text_names_every_check_and_counts_them(cli: Cli) -> None:
    ended = cli("adapter", "check", "null", plugins="", width=120)
    assert "PASS    linear: fp32 scripted" in ended.out
    assert "SKIP    attention" in ended.out
    assert ended.out.splitlines()[-1].startswith("NullAdapter on null0: ")
    assert ", 0 failed, 6 skipped" in ended.out.splitlines()[-1]


def test_one_broken_primitive_of_a_plugin_fails_the_check_that_names_it(cli: Cli, install: Install) -> None:
    install("broken", BROKEN, "BrokenAdapter")
    ended = cli("adapter", "check", "broken", "--json", plugins="")
    failed = [result for result in ended.json()["results"] if result["ok"] is False]
    assert ended.code == 1
    assert [result["name"].split()[0] for result in failed] == ["rope:"]
    assert "off by" in failed[0]["reason"]
    shown = cli("adapter", "check", "broken", plugins="", width=160)
    assert shown.code == 1
    (line,) = [line for line in shown.out.splitlines() if line.startswith("FAIL")]
    assert "rope: fp32" in line


def test_what_an_adapter_prints_stays_out_of_the_document(cli: Cli, install: Install) -> None:
    talking = BROKEN.replace(
        "return super()._rope(heads, cosines, -sines",
        "print('[driver] hello'); return super()._rope(heads, cosines, sines",
    )
    install("talking", talking.replace("broken", "talking"), "BrokenAdapter")
    ended = cli("adapter", "check", "talking", "--json", plugins="")
    assert ended.json()["failed"] == 0
    assert "[driver] hello" in ended.err


def test_what_cannot_be_checked_ends_with_the_error_that_says_why(cli: Cli, install: Install) -> None:
    install("old", "", "Adapter", version=99)
    install("needy", "import no_such_module\ndef probe(host): ...\n", "Adapter")
    ends: dict[tuple[str | Path, ...], tuple[str, int, str]] = {
        ("adapter", "check", "nonesuch"): ("", 2, "unknown-name"),
        ("adapter", "check", "null"): ("cpu", 2, "bad-usage"),
        ("adapter", "check", "nvidia"): ("", 3, "device-not-found"),
        ("adapter", "check", "null", "--device", "null7"): ("", 3, "device-not-found"),
        ("adapter", "check", "old"): ("", 3, "plugin-refused"),
        ("adapter", "check", "needy"): ("", 3, "device-not-found"),
        ("--replay", HOSTS / "cpu-healthy", "adapter", "check", "cpu"): ("", 2, "replay-refused"),
    }
    for command, (plugins, code, error) in ends.items():
        ended = cli(*command, plugins=plugins)
        assert (ended.code, ended.error, ended.out) == (code, error, ""), command
    assert "no_such_module" in cli("adapter", "check", "needy", plugins="").err
    assert "is for plug-in contract 99" in cli("adapter", "check", "old", plugins="").err


def test_without_torch_the_extra_that_brings_it_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "vllm_probe.vendors.cpu.adapter", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    ended = cli("adapter", "check", "cpu")
    assert (ended.code, ended.error) == (3, "missing-extra")
    assert extra_command("runtime") in ended.err
    assert cli("adapter", "check", "null", plugins="").code == 0


@pytest.mark.parametrize(
    "name", ["", "A", "1st", "two words", "a-b", "a__b", "_a", "x" * 33, "../up", "cpu", "all", "class"]
)
def test_a_name_that_is_none_or_taken_makes_no_package(cli: Cli, name: str) -> None:
    ended = cli("adapter", "new", name, "--output", "made")
    assert (ended.code, ended.error) == (2, "bad-usage")
    assert not Path("made").exists()


def test_nothing_is_overwritten(cli: Cli) -> None:
    Path("vllm-probe-acme").mkdir()
    Path("vllm-probe-acme/mine.txt").write_text("mine")
    Path("file").write_text("mine")
    for output in (".", "file"):
        ended = cli("adapter", "new", "acme", "--output", output)
        assert (ended.code, ended.error) == (2, "unwritable-output")
    assert [path.name for path in Path("vllm-probe-acme").iterdir()] == ["mine.txt"]


class Installed:
    """A scaffolded package on the path of processes of its own."""

    def __init__(self, root: Path, site: Path) -> None:
        """Writes what `pip install -e` leaves behind."""
        self.root = root
        project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
        info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
        points = project["entry-points"]["vllm_probe.vendors"].items()
        (info / "entry_points.txt").write_text("[vllm_probe.vendors]\n" + "".join(f"{k} = {v}\n" for k, v in points))
        self._env = {key: value for key, value in os.environ.items() if key != "VLLM_PROBE_PLUGINS"}
        self._env |= {"PYTHONPATH": f"{site}{os.pathsep}{root}", "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "120"}

    def run(self, *arguments: str) -> str:
        """What `python -m ...` prints, once it has succeeded."""
        return self.ended(*arguments).stdout

    def ended(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """How `python -m ...` ended, once it has succeeded."""
        ended = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=self.root,
            env=self._env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended


@pytest.fixture
def acme(cli: Cli, tmp_path: Path) -> Installed:
    ended = cli("adapter", "new", "my_npu", "--output", tmp_path / "made")
    assert ended.code == 0
    assert "pip install -e" in ended.err
    return Installed(tmp_path / "made" / "vllm-probe-my-npu", tmp_path / "site")


@pytest.mark.timeout(600)
def test_a_new_package_is_clean_and_passes_its_own_tests(acme: Installed) -> None:
    acme.run("ruff", "check", ".")
    acme.run("ruff", "format", "--check", ".")
    acme.run("mypy")
    tested = acme.run("pytest", "-q", "-rs", "-p", "no:cacheprovider")
    assert "failed" not in tested
    assert "the adapter has none" in tested
    texts = [path.read_text() for path in acme.root.rglob("*.py")]
    assert [text for text in texts if re.search(r"\b[Aa]n? my_npu", text)] == []  # a name may begin with any letter
    left = [path for path in acme.root.rglob("*") if path.is_file() and "$" in path.read_text(errors="ignore")]
    assert [path for path in left if path.suffix in {".py", ".toml", ".md", ".json"}] == []


def test_a_new_package_is_listed_and_checked_and_what_is_left_to_write_is_skipped(acme: Installed) -> None:
    assert "MyNpuAdapter" in acme.run("vllm_probe", "adapter", "list")
    report: Any = json.loads(acme.run("vllm_probe", "adapter", "check", "my_npu", "--json"))
    ends = {result["name"]: result["ok"] for result in report["results"]}
    assert ends["linear: fp32 numpy"] is True
    missing = ("attention", "rope", "rms_norm", "quantize", "swap", "compile_model: the same values, or a reason")
    assert {name for name, ok in ends.items() if ok is None} == set(missing)
    document = acme.root / "vllm_probe_my_npu" / "capabilities" / "my_npu.capability.json"
    acme.run("vllm_probe", "capability", "validate", str(document))


def test_a_device_of_an_adapter_without_torch_is_not_said_to_be_served_from(acme: Installed, tmp_path: Path) -> None:
    document = acme.root / "vllm_probe_my_npu" / "capabilities" / "my_npu.capability.json"
    question = ("negotiate", "all-MiniLM-L6-v2", "--device", "my_npu", "--capability", str(document))
    said = acme.ended("vllm_probe", *question, "--output", str(tmp_path / "runtime.json")).stderr
    assert "computes without torch: it can be benched and checked, not served from" in said
    assert "vllm-probe serve" not in said


def test_the_list_is_sorted_and_says_what_an_adapter_is_for(cli: Cli, install: Install) -> None:
    install("acme", BROKEN, "BrokenAdapter")
    listed = cli("adapter", "list", plugins="").out.splitlines()
    names = [line.split()[0] for line in listed[2 : listed.index("")]]
    assert "acme" in names
    assert names == sorted(names)
    assert "An adapter that derives from TorchAdapter can serve" in " ".join(listed)


def test_an_unknown_plugin_is_answered_with_those_that_the_list_shows(cli: Cli) -> None:
    ended = cli("adapter", "check", "nope", plugins="")
    assert ended.error == "unknown-name"
    hint = ended.err.splitlines()[-1].removeprefix("hint: the plug-ins here are ").split(", ")
    listed = cli("adapter", "list", plugins="").out.splitlines()
    assert hint == [line.split()[0] for line in listed[2 : listed.index("")]]
