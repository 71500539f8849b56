"""MIG instances of NVIDIA GPUs."""

import pytest

from tests.unit.detect.scenes import HOSTS, host_of
from tests.unit.vendors.nvidia.cards import BUS, CUDA, NVML, ONE, found, libs
from vllm_probe.vendors.nvidia.probe import probe


@pytest.mark.parametrize(
    ("mask", "visible"),
    [
        (None, True),
        ("MIG-00010203-0405-0607-0809-0a0b0c0d0e0f", True),
        ("MIG-ffffffff-0405-0607-0809-0a0b0c0d0e0f", False),
    ],
)
def test_a_mig_instance_is_known_to_cuda_by_its_uuid(mask: str | None, visible: object) -> None:
    uuid = "00010203-0405-0607-0809-0a0b0c0d0e0f" if visible else "ffffffff-0405-0607-0809-0a0b0c0d0e0f"
    instance = {
        "nvmlDeviceGetMigMode": 1,
        "nvmlDeviceGetMaxMigDeviceCount": 1,
        "nvmlDeviceGetMigDeviceHandleByIndex": 0,
        "nvmlDeviceGetGpuInstanceId": 3,
        "nvmlDeviceGetComputeInstanceId": 0,
        "nvmlDeviceGetUUID": "MIG-00010203-0405-0607-0809-0a0b0c0d0e0f",
    }
    bytes_ = {"cuDeviceGetUuid_v2(0)": {"status": 0, "outs": [uuid.replace("-", "")]}}
    cuda = CUDA | {"cuDeviceGetCount": 1, "cuDeviceGetPCIBusId": "0000:01:00.0", **bytes_}
    env = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
    parent, part = found(ONE, libs=libs(cuda=cuda, nvml=NVML | instance), env=env).devices
    assert (part.id, part.usable, part.visible) == ("0000:01:00.0/mig-3.0", True, visible)
    assert ("cuda" in part.indices, "cuda" in parent.indices, parent.usable) == (visible, False, False)


@pytest.mark.parametrize("count", [None, 1])
def test_a_mig_instance_that_a_variable_names_by_a_uuid_that_nothing_tells_is_not_called_hidden(
    count: int | None,
) -> None:
    facts = HOSTS["nvidia-mig"]["facts"]
    if count:
        facts = facts | {"libs": libs(CUDA | {"cuDeviceGetCount": count, "cuDeviceGetPCIBusId": "0000:4b:00.0"}, None)}
    mask = {"CUDA_VISIBLE_DEVICES": "MIG-11111111-2222-3333-4444-555555555555"}
    answer = probe(host_of(**facts | {"env": mask}))
    instances = [device for device in answer.devices if "parent" in device.details]
    assert [device.verdict.code for device in instances] == ["unknown", "unknown"]
    assert all(device.visible and not device.usable for device in instances)
    assert "nothing here tells which" in answer.unknown["/1/indices/cuda"]


def test_nvidia_smi_lists_the_uuids_of_mig_instances_that_its_report_lacks() -> None:
    facts = HOSTS["nvidia-mig"]["facts"]
    uuids = [f"MIG-11111111-2222-3333-4444-{digit * 12}" for digit in "56"]
    lines = [f"  MIG 3g.40gb     Device  {n}: (UUID: {uuid})" for n, uuid in enumerate(uuids)]
    listing = "\n".join(["GPU 0: NVIDIA H100 PCIe (UUID: GPU-00000000-0000-0000-0000-0000000000b1)", *lines])
    commands = facts["commands"] | {"nvidia-smi -L": listing}
    answer = probe(host_of(**facts | {"env": {"CUDA_VISIBLE_DEVICES": uuids[1]}, "commands": commands}))
    instances = [device for device in answer.devices if "parent" in device.details]
    assert [device.details["uuid"] for device in instances] == uuids
    assert [device.verdict.code for device in instances] == ["hidden", "usable"]


def test_a_mig_instance_has_the_pcie_link_of_its_gpu_and_no_nvlink() -> None:
    nvlinks = {"nvmlDeviceGetNvLinkState": 1, "nvmlDeviceGetNvLinkRemotePciInfo": {"bus": 0x41}}
    instance = {
        "nvmlDeviceGetMigMode": 1,
        "nvmlDeviceGetMaxMigDeviceCount": 1,
        "nvmlDeviceGetMigDeviceHandleByIndex": 0,
        "nvmlDeviceGetGpuInstanceId": 3,
        "nvmlDeviceGetComputeInstanceId": 0,
    }
    files = ONE | {f"{BUS}/0000:01:00.0/max_link_width": "16"}
    whole, part = found(files, libs=libs(nvml=NVML | nvlinks | instance)).devices
    assert [link["kind"] for link in whole.links] == ["pcie", "nvlink"]
    assert [link["kind"] for link in part.links] == ["pcie"]
