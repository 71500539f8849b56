"""What the statuses of DCMI and of ACL mean, and what to do about them."""

from typing import NamedTuple


class Meaning(NamedTuple):
    """Of a status.

    Attributes:
        text: what is wrong, part of a sentence.
        fix: the way out, null where there is none to type or do.
    """

    text: str
    fix: str | None = None


NOT_PERMITTED, INNER_ERROR, NO_FUNCTION = -8002, -8005, -99998
"""The last is our own: the library has no such function."""

LOG = "see `sudo dmesg | grep -i -E 'davinci|devdrv'` on the host"
GROUP = 'run `sudo usermod -aG HwHiAiUser "$USER"` on the host and log in again'
REBOOT = f"reboot; {LOG}"

DCMI = {
    -8001: Meaning("DCMI refuses the question"),
    NOT_PERMITTED: Meaning("this process may not use the driver", GROUP),
    -8003: Meaning("DCMI had no memory to answer with"),
    -8004: Meaning("a check inside DCMI failed"),
    INNER_ERROR: Meaning(
        "DCMI cannot be initialised: the driver is not loaded, this user may not use it, or a reboot is due",
        f"reboot where driver or firmware were upgraded; else see `lsmod | grep drv_pcie_host`, and {GROUP}; {LOG}",
    ),
    -8006: Meaning("the driver did not answer in time", REBOOT),
    -8007: Meaning("the driver knows no device of that number"),
    -8008: Meaning("the driver does not find the device", LOG),
    -8009: Meaning("the driver refuses a call", LOG),
    -8010: Meaning("nothing can be sent to the device", REBOOT),
    -8011: Meaning("the device does not answer", REBOOT),
    -8012: Meaning("the device is not ready yet", f"wait until it has started; {LOG}"),
    -8013: Meaning("the driver does not tell it inside a container", "run the same on the host"),
    -8015: Meaning("a reset of the device failed", "power the machine off and on"),
    -8017: Meaning("the firmware of the device is being upgraded", "wait for the end of the upgrade, then reboot"),
    -8020: Meaning("the device is occupied", "stop the container or process that holds it, or take another device"),
    -8023: Meaning("the driver has no configuration of it"),
    -8255: Meaning("the device does not support it"),
    NO_FUNCTION: Meaning("this driver's DCMI has no such function"),
}
"""Return codes of https://www.hiascend.com/document, DCMI API reference."""

LOST = frozenset(DCMI) - {-8001, -8003, -8004, -8013, -8023, -8255, NO_FUNCTION}
"""Statuses that say something of the device or driver, and not of the question."""

_OCCUPIED = Meaning(
    "DCMI cannot be initialised in this container: mostly another container holds the device",
    "stop that container or start this one with another free /dev/davinci node; or reboot the host, where the firmware "
    "was upgraded",
)
"""https://github.com/vllm-project/vllm-ascend/issues/2698: the usual cause where the nodes are there and open."""

ACL_REPEATED = 100002
"""aclInit was called before, which does no harm."""

ACL = {
    107001: Meaning("ACL knows no device of that number", "set ASCEND_RT_VISIBLE_DEVICES to numbers that are here"),
    107002: Meaning("ACL has no context"),
    207001: Meaning("ACL could not get memory", "free the device, see `npu-smi info`"),
    500001: Meaning("CANN and the driver do not fit together", "install the pair of Huawei's release table"),
    507008: Meaning("CANN does not know this chip", "install the CANN, or start the image, that is built for it"),
    507033: Meaning("the device cannot be set up", "free it, see `npu-smi info`; where it is free, reboot"),
    507899: Meaning("the driver fails inside", f"install the driver that this CANN needs; {LOG}"),
}
"""aclError: https://www.hiascend.com/document, AscendCL API reference, and acl/error_codes of CANN."""


def dcmi_meaning(status: int, *, inside: bool = False) -> Meaning:
    """What the status that is not 0 means, `inside` a container or not."""
    if inside and status == INNER_ERROR:
        return _OCCUPIED
    return DCMI.get(status, Meaning(f"DCMI gives {status}", LOG))


def acl_meaning(status: int) -> Meaning:
    """What the status that is not 0 means."""
    return ACL.get(status, Meaning(f"ACL gives {status}", "see the newest file of ~/ascend/log/debug/plog"))
