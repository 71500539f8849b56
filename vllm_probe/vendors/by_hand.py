"""The check of a device that is left to a person, where nothing here asks its driver."""

from pathlib import Path

from vllm_probe.core.device import Device
from vllm_probe.core.files import read_json
from vllm_probe.vendors.layer0 import UNASKED

OTHERWISE = "where that fails or is not there, install the driver's libraries and tools anew"
"""What to do when the command of `check_by_hand` tells nothing either."""


def check_by_hand(device: Device) -> str | None:
    """The vendor's command that asks the driver of `device`; null where something was asked, or none is known."""
    path = Path(__file__).parent / device.vendor / "layer0.json"
    untold = device.verdict.code == "unknown" and UNASKED in device.verdict.reason and "`" not in device.verdict.reason
    if not untold or not path.is_file():
        return None
    tool: str | None = read_json(path).get("tools", {}).get("gpu" if device.kind == "igpu" else device.kind)
    return tool
