"""The vector width of the config is the one that the process computes with."""

import sys
from pathlib import Path

import pytest

from tests.runtime.support import write_checkpoint
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.cpu.lanes import CAPABILITIES, lanes_of
from vllm_probe.vendors.cpu.probe import probe

SCRIPT = """
import torch
from pathlib import Path
from tests.runtime.support import make_config
from vllm_probe.host.local import LocalHost
from vllm_probe.models.hf import read_folder
from vllm_probe.runtime.engine import Engine
from vllm_probe.vendors.cpu.adapter import CpuAdapter
from vllm_probe.vendors.cpu.probe import probe
if {late}:
    torch.backends.cpu.get_cpu_capability()
spec = read_folder(Path({folder!r}))
adapter = CpuAdapter(LocalHost())
adapter.set_device(probe(LocalHost()).devices[0])
engine = Engine.load(make_config(spec, group_width={lanes}, threads=1), spec, adapter)
print(torch.backends.cpu.get_cpu_capability())
engine.close()
"""

WIDTHS = lanes_of(probe(LocalHost()).devices[0].details["isa"] or ())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not WIDTHS:
        pytest.skip("this processor has one vector width")
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint"))


@pytest.mark.parametrize("late", [False, True])
def test_an_engine_keeps_to_a_narrower_width_unless_it_is_too_late(folder: Path, late: bool) -> None:
    script = SCRIPT.format(late=late, folder=str(folder), lanes=WIDTHS[1])
    result = LocalHost().run([sys.executable, "-c", script], timeout_s=250)
    assert result.returncode == 0, result.stderr
    assert (result.stdout.strip() == CAPABILITIES[WIDTHS[1]]) is not late
    assert ("cannot be limited" in result.stderr) is late


def test_an_engine_of_the_own_width_limits_nothing(folder: Path) -> None:
    script = SCRIPT.format(late=False, folder=str(folder), lanes=WIDTHS[0])
    result = LocalHost().run([sys.executable, "-c", script], timeout_s=250)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() not in CAPABILITIES.values()
