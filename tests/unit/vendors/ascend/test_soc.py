"""Which chip a name means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.vendors.ascend.soc import soc_of


@pytest.mark.parametrize(
    ("chip", "npu", "name", "arch", "version"),
    [
        ("910B3", None, "Huawei Ascend 910B3", "910b3", "Ascend910B3"),
        ("Ascend 910B3", "NA", "Huawei Ascend 910B3", "910b3", "Ascend910B3"),
        ("910B2C", None, "Huawei Ascend 910B2C", "910b2c", "Ascend910B2C"),
        ("910B4-1", None, "Huawei Ascend 910B4-1", "910b4-1", "Ascend910B4-1"),
        ("310P3", None, "Huawei Ascend 310P3", "310p3", "Ascend310P3"),
        ("310B4", None, "Huawei Ascend 310B4", "310b4", "Ascend310B4"),
        ("910ProB", None, "Huawei Ascend 910ProB", "910prob", "Ascend910ProB"),
        ("Ascend910", "9391", "Huawei Ascend 910C", "910_93", "Ascend910_9391"),
        ("Ascend910_9382", None, "Huawei Ascend 910C", "910_93", "Ascend910_9382"),
        ("Ascend950PR", "9579", "Huawei Ascend 950PR", "950pr", "Ascend950PR_9579"),
        ("Ascend950DT", None, "Huawei Ascend 950DT", "950dt", "Ascend950DT"),
    ],
)
def test_a_variant_is_known_by_its_name(chip: str, npu: str | None, name: str, arch: str, version: str) -> None:
    assert soc_of(chip, npu) == (name, arch, version)


@pytest.mark.parametrize("chip", ["910", "Ascend910", "910B", "Ascend", "Mcu", "", None, "910B9", "310P"])
def test_a_name_that_several_chips_have_is_left_to_the_bus(chip: str | None) -> None:
    assert soc_of(chip) is None


@given(st.text(), st.none() | st.text())
def test_any_name_is_a_chip_or_none(chip: str, npu: str | None) -> None:
    found = soc_of(chip, npu)
    assert found is None or found.version.startswith("Ascend")
