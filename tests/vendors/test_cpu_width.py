"""The vector width of a process is chosen before torch computes, and never after."""

import sys

import pytest

pytest.importorskip("torch")

from vllm_probe.core.errors import AdapterOutOfOrder, UnknownName
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.cpu.adapter import CpuAdapter
from vllm_probe.vendors.cpu.probe import probe

SCRIPT = """
import torch
from vllm_probe.host.local import LocalHost
from vllm_probe.vendors.cpu.adapter import CpuAdapter
from vllm_probe.vendors.cpu.probe import probe
adapter = CpuAdapter(LocalHost())
adapter.set_device(probe(LocalHost()).devices[0])
narrowest = adapter.process_widths()[-1]
if {late}:
    torch.backends.cpu.get_cpu_capability()
print(adapter.limit_width(narrowest), torch.backends.cpu.get_cpu_capability())
"""


@pytest.fixture
def adapter() -> CpuAdapter:
    adapter = CpuAdapter(LocalHost())
    adapter.set_device(probe(LocalHost()).devices[0])
    if not adapter.process_widths():
        pytest.skip("this processor has one vector width")
    return adapter


@pytest.mark.usefixtures("adapter")
@pytest.mark.parametrize(("late", "said"), [(False, "True DEFAULT"), (True, "False")])
def test_a_fresh_process_keeps_to_the_limit_and_one_that_has_computed_says_that_it_does_not(
    late: bool, said: str
) -> None:
    result = LocalHost().run([sys.executable, "-c", SCRIPT.format(late=late)], timeout_s=250)
    assert result.stdout.startswith(said), result.stderr


def test_an_open_adapter_and_an_unknown_width_are_refused(adapter: CpuAdapter) -> None:
    with pytest.raises(UnknownName, match="3 lanes wide"):
        adapter.limit_width(3)
    adapter.open()
    with pytest.raises(AdapterOutOfOrder, match="limit_width after open"):
        adapter.limit_width(adapter.process_widths()[-1])
    adapter.close()
