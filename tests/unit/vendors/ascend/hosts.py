"""Machines with Ascend NPUs, made of the files that matter, and the captures beside this checkout."""

from typing import Any

import pytest

from tests.unit.detect.scenes import HOSTS, ROOT
from vllm_probe.core import codec
from vllm_probe.core.device import Device
from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.scene import Scene
from vllm_probe.host.replay import ReplayHost
from vllm_probe.vendors.ascend.probe import probe

MIB = 1 << 20
BUS = "/sys/bus/pci/devices/0000:c1:00.0"
SHARED = ("/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc")
CARD = {
    f"{BUS}/class": "0x120000",
    f"{BUS}/vendor": "0x19e5",
    f"{BUS}/device": "0xd802",
    f"{BUS}/driver": "!link ../../../bus/pci/drivers/devdrv_device_driver",
    "/proc/self/status": "Uid:\t1002\t1002\t1002\t1002\nGid:\t1002\t1002\t1002\t1002\nGroups:\t1000\n",
    **dict.fromkeys((*SHARED, "/dev/davinci0"), "!chr 236:0 0660 1000:1000"),
}
CONTAINER = {"/.dockerenv": ""}
CHIP = {"chip_name": "910B4", "aicore_cnt": 20}
PCIE = [0x19E5, 0x19E5, 0xD802, 0, 0, 0xC1, 0, 0]
DCMI: dict[str, Any] = {
    "dcmi_init": 0,
    "dcmi_get_driver_version": "25.0.1",
    "dcmi_get_card_list": 1,
    "dcmi_get_device_num_in_card": 1,
    "dcmi_get_device_type": 0,
    "dcmi_get_device_chip_info": CHIP,
    "dcmi_get_device_pcie_info": PCIE,
    "dcmi_get_device_hbm_info": [32768, 1600, 2768, 40, 0],
    "dcmi_get_device_health": 0,
    "dcmi_get_device_logic_id": 0,
    "dcmi_get_device_phyid_from_logicid": 0,
    "dcmi_get_device_utilization_rate": 3,
    "dcmi_get_device_temperature": 41,
    "dcmi_get_device_power_info": 887,
}
ACL: dict[str, Any] = {"aclInit": 0, "aclrtGetDeviceCount": 1}
TABLE = """
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B4               | OK            | 88.7        41                512  / 1024          |
| 0                         | 0000:C1:00.0  | 3           0    / 0          2768 / 32768         |
+===========================+===============+====================================================+
"""
TWO = (
    TABLE
    + """| 7     910B4               | OK            | 88.7        41                512  / 1024          |
| 0                         | 0000:C2:00.0  | 3           0    / 0          1000 / 32768         |
"""
)
CAPTURES = ROOT.parent / "shared" / "data" / "captures" / "ascend"
needs_captures = pytest.mark.skipif(not CAPTURES.exists(), reason="the captures are not beside this checkout")


def capture(name: str) -> str:
    return (CAPTURES / name).read_text(encoding="utf-8")


def libs(dcmi: dict[str, Any] | None = None, acl: dict[str, Any] | None = None) -> dict[str, Any]:
    """Libraries that load and answer with these values; null is one that is not there."""
    named = {"libdcmi.so": dcmi, "libascendcl.so": acl}
    return {name: {"load": "ok", "calls": calls} for name, calls in named.items() if calls is not None}


def host_of(files: dict[str, str], **facts: Any) -> ReplayHost:
    return ReplayHost(codec.from_json(Scene, {"facts": {"files": files, **facts}}))


def probed(files: dict[str, str], **facts: Any) -> ProbeResult:
    return probe(host_of(files, **facts))


def devices(files: dict[str, str], **facts: Any) -> dict[str, Device]:
    return {device.id: device for device in probed(files, **facts).devices}


def the_card(files: dict[str, str], **facts: Any) -> Device:
    (device,) = probed(files, **facts).devices
    return device


def recorded(name: str) -> ProbeResult:
    return probe(ReplayHost(codec.from_json(Scene, HOSTS[name])))


def function(address: str, number: str = "0xd802") -> dict[str, str]:
    folder = f"/sys/bus/pci/devices/{address}"
    return {
        f"{folder}/class": "0x120000",
        f"{folder}/vendor": "0x19e5",
        f"{folder}/device": number,
        f"{folder}/driver": "!link ../../../bus/pci/drivers/devdrv_device_driver",
    }
