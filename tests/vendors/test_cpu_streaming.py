"""The CPU's copy past the caches moves every byte, or says that it cannot."""

import pytest

torch = pytest.importorskip("torch")

from vllm_probe.host.local import LocalHost  # noqa: E402
from vllm_probe.vendors.cpu.adapter import CpuAdapter  # noqa: E402
from vllm_probe.vendors.cpu.probe import probe  # noqa: E402


@pytest.fixture
def adapter() -> CpuAdapter:
    adapter = CpuAdapter(LocalHost())
    adapter.set_device(probe(LocalHost()).devices[0])
    adapter.open()
    return adapter


@pytest.mark.parametrize("elements", [16, 1024, 100_000])
def test_all_bytes_arrive(adapter: CpuAdapter, elements: int) -> None:
    source, target = adapter.random((elements,), "fp32", 1), adapter.random((elements,), "fp32", 2)
    if not adapter.stream(source, target):
        pytest.skip("this processor has no such store that we know")
    assert torch.equal(source, target)


def test_what_is_no_whole_plain_array_is_refused_untouched(adapter: CpuAdapter) -> None:
    source, target = torch.arange(64.0), torch.zeros(64)
    assert not adapter.stream(source[::2], target[:32])
    assert not adapter.stream(source[:15], target[:15])
    assert not adapter.stream(source, target[:32])
    assert not target.any()
