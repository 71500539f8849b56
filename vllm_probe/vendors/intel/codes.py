"""What the statuses of Level Zero mean, and what to do about them."""

from typing import NamedTuple


class Meaning(NamedTuple):
    """Of a status.

    Attributes:
        text: what is wrong, part of a sentence.
        fix: the way out, null where there is none to type or do.
    """

    text: str
    fix: str | None = None


UNINITIALIZED = 0x78000001
INSTALL = "run `sudo apt-get install -y libze1 libze-intel-gpu1 intel-opencl-icd` from Intel's repository"
"""https://dgpu-docs.intel.com/driver/client/overview.html."""

REBOOT = "see `sudo dmesg | grep -iE 'i915|xe'`, and reboot"
_NEWER = f"the compute runtime is older than the GPU; {INSTALL}"

RESULTS = {
    0x70000001: Meaning("the GPU is lost: it hung, was reset or removed", REBOOT),
    0x70000002: Meaning("the machine has no memory left"),
    0x70000003: Meaning("the GPU has no memory left", "end what holds it: `sudo fuser -v /dev/dri/renderD*` lists it"),
    0x70000006: Meaning("the GPU has to be reset", REBOOT),
    0x70000007: Meaning("the GPU is in a state of low power"),
    0x70010000: Meaning("this process may not use the GPU", 'run `sudo usermod -aG render "$USER"` and log in again'),
    0x70010001: Meaning("the GPU is taken by another process"),
    0x70020000: Meaning("a library that Level Zero needs is missing", INSTALL),
    UNINITIALIZED: Meaning("Level Zero finds no driver that has a GPU", INSTALL),
    0x78000002: Meaning("the Level Zero loader and the driver are of versions that do not fit", INSTALL),
    0x78000003: Meaning("the driver does not support this GPU", _NEWER),
    0x7FFFFFFE: Meaning("Level Zero fails without a reason", REBOOT),
}
"""https://oneapi-src.github.io/level-zero-spec/level-zero/latest/core/api.html, ze_result_t."""


def meaning(status: int) -> Meaning:
    """Of a status that is not 0."""
    return RESULTS.get(status, Meaning(f"Level Zero fails with status {status:#x}"))
