import pytest

from vllm_probe.host.naming import machine_name


@pytest.mark.parametrize(
    ("spelled", "name"), [("AMD64", "x86_64"), ("arm64", "aarch64"), ("x86_64", "x86_64"), ("riscv64", "riscv64")]
)
def test_a_processor_has_one_name_under_every_system(spelled: str, name: str) -> None:
    assert machine_name(spelled) == name
