"""Shape of the package: layers, public names, sizes."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import vllm_probe
from vllm_probe import api

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "vllm_probe").rglob("*.py"))


def test_the_layers_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=250)
    assert ended.returncode == 0, ended.stdout


def test_every_file_stays_small() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in FILES}
    assert {path: length for path, length in lengths.items() if length > 300} == {}


def test_every_public_name_exists() -> None:
    for path in FILES:
        tree = ast.parse(path.read_text())
        listed = [
            node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ]
        for node in listed:
            names = ast.literal_eval(node.value)
            module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
            assert [name for name in names if not hasattr(module, name)] == []


def test_the_verbs_stand_at_the_root_also_after_their_packages_were_imported() -> None:
    import_module("vllm_probe.negotiate.request")
    import_module("vllm_probe.bench.plan")
    for verb in vllm_probe.__all__:
        assert getattr(vllm_probe, verb) is getattr(api, verb)
    with pytest.raises(ImportError, match="nothing"):
        exec("from vllm_probe import nothing")


def test_importing_the_root_imports_nothing_else() -> None:
    code = "import vllm_probe, sys; print(*[name for name in sys.modules if name.startswith('vllm_probe.')])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=250)
    assert ended.stdout.split() == []
