"""What an adapter loads before it computes."""

import sys

import pytest

pytest.importorskip("torch")

from vllm_probe.host.local import LocalHost


def test_adapters_do_not_load_the_compiler_of_torch() -> None:
    script = "import sys, vllm_probe.vendors.cpu.adapter; print('torch._dynamo' in sys.modules)"
    result = LocalHost().run([sys.executable, "-c", script], timeout_s=250)
    assert result.stdout == "False\n", result.stderr
