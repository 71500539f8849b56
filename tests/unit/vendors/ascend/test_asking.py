"""What is asked, and for how long."""

import inspect
from typing import Any

import pytest

from tests.unit.vendors.ascend.hosts import ACL, CARD, DCMI, TABLE, host_of, libs
from vllm_probe.vendors.ascend import smi
from vllm_probe.vendors.ascend.asking import ACL_S, DCMI_S, MEMORY_S, ask, ask_memory
from vllm_probe.vendors.registry import PortableDeviceManager


def test_all_that_may_hang_ends_before_the_registry_gives_the_vendor_up() -> None:
    limit = inspect.signature(PortableDeviceManager.probe_devices).parameters["timeout_s"].default
    assert max(DCMI_S + smi.TIMEOUT_S, ACL_S) + MEMORY_S < limit


@pytest.mark.parametrize(
    ("dcmi", "is_asked"),
    [
        (DCMI, False),
        ({"dcmi_init": -8005}, False),
        (None, True),
        ({"dcmi_init": "timeout"}, True),
        (DCMI | {"dcmi_get_card_list": 0}, True),
        (DCMI | {"dcmi_get_device_hbm_info": -8255}, True),
    ],
)
def test_npu_smi_is_asked_only_where_it_may_know_more(dcmi: dict[str, Any] | None, is_asked: object) -> None:
    reports = ask(host_of(CARD, libs=libs(dcmi, ACL), commands={"npu-smi info": TABLE}))
    assert (reports.smi is not None) == is_asked


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        ({"libs": libs(DCMI)}, 0),
        ({"libs": libs({"dcmi_init": -8012})}, -8012),
        ({"commands": {"npu-smi info": TABLE}}, 0),
        ({"commands": {"npu-smi info": "!rc=1\ndcmi module initialize failed. ret is -8005"}}, -8005),
        ({"commands": {"npu-smi info": "something else"}}, None),
        ({}, None),
    ],
)
def test_the_status_of_the_driver_is_dcmis_or_npu_smis(facts: dict[str, Any], status: int | None) -> None:
    assert ask(host_of(CARD, **facts)).status == status


def test_why_nothing_is_known_is_said_in_words() -> None:
    said = ask(host_of(CARD)).silence
    assert "libdcmi.so: cannot open shared object file" in said
    assert "there is no npu-smi" in said
    assert ask(host_of(CARD, libs=libs({"dcmi_init": -8020}))).silence == "DCMI: the device is occupied"
    assert ask(host_of(CARD, libs=libs(DCMI))).silence == "the driver does not list it"


@pytest.mark.parametrize(
    ("load", "state"),
    [
        ("error: libascendcl.so: invalid ELF header", "broken"),
        ("error: libascend_hal.so: cannot open", "broken"),
        (None, "missing"),
    ],
)
def test_a_library_that_cannot_be_loaded_is_missing_or_broken(load: str | None, state: str) -> None:
    found = {"libascendcl.so": {"load": load}} if load else {}
    assert ask(host_of(CARD, libs=found)).acl.state == state


def test_without_acl_there_is_no_memory_of_it() -> None:
    assert ask_memory(host_of(CARD)) == []
