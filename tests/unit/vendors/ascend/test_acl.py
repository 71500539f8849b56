"""ACL on recorded machines: where it is looked for."""

import pytest

from tests.unit.vendors.ascend.hosts import ACL, CARD, host_of, libs
from vllm_probe.core.errors import LibraryUnavailable
from vllm_probe.vendors.ascend.acl import memory, read

PATH = "/usr/local/Ascend/ascend-toolkit/latest/lib64/libascendcl.so"


@pytest.mark.parametrize(
    ("path", "script"),
    [
        (PATH, "/usr/local/Ascend/ascend-toolkit/set_env.sh"),
        ("/usr/local/Ascend/cann/lib64/libascendcl.so", "/usr/local/Ascend/cann/set_env.sh"),
    ],
)
def test_a_cann_that_the_loader_does_not_find_is_loaded_from_its_folder_and_its_script_told(
    path: str, script: str
) -> None:
    report = read(host_of(CARD | {path: "", script: ""}, libs={path: libs(acl=ACL)["libascendcl.so"]}))
    assert (report["status"], report["script"], report["devices"]) == (0, script, [{}])


def test_a_cann_that_lacks_a_library_is_not_looked_for_elsewhere() -> None:
    text = "libascend_hal.so: cannot open shared object file: No such file or directory"
    host = host_of(CARD | {PATH: ""}, libs={"libascendcl.so": {"load": f"error: {text}"}, PATH: {"load": "ok"}})
    with pytest.raises(LibraryUnavailable, match=r"libascend_hal\.so"):
        read(host)


def test_the_order_of_aclrtgetmeminfo_is_free_then_total() -> None:
    host = host_of(CARD, libs=libs(acl=ACL | {"aclrtSetDevice": 0, "aclrtGetMemInfo": [600, 800]}))
    assert memory(host) == {"devices": [{"free": 600, "total": 800}]}


def test_zero_and_zero_is_no_memory() -> None:
    host = host_of(CARD, libs=libs(acl=ACL | {"aclrtSetDevice": 0, "aclrtGetMemInfo": [0, 0]}))
    assert memory(host) == {"devices": [{}]}


def test_a_second_initialisation_does_no_harm() -> None:
    assert read(host_of(CARD, libs=libs(acl=ACL | {"aclInit": 100002})))["status"] == 0


def test_a_count_that_fails_leaves_no_devices() -> None:
    report = read(host_of(CARD, libs=libs(acl={"aclInit": 0})))
    assert report == {"status": 0}
