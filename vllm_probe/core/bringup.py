"""The order in which an adapter is brought up, enforced once for all vendors."""

from abc import ABC, abstractmethod
from enum import IntEnum

from vllm_probe.core.device import Device
from vllm_probe.core.errors import AdapterOutOfOrder


class Stage(IntEnum):
    """How far an adapter has been brought up; each stage needs the one before."""

    NEW = 0
    DEVICE_SET = 1
    OPEN = 2


class BringUp(ABC):
    """One device, in order: `set_device`, `open`, then everything else, then `close`."""

    def __init__(self) -> None:
        self._stage = Stage.NEW
        self._device: Device | None = None

    @property
    def device(self) -> Device:
        """The device that was set.

        Raises:
            AdapterOutOfOrder: before `set_device`.
        """
        self._require(Stage.DEVICE_SET, "device")
        assert self._device is not None
        return self._device

    def set_device(self, device: Device) -> None:
        """Chooses the device of this process; it cannot be changed while open.

        Raises:
            AdapterOutOfOrder: after `open`.
        """
        if self._stage is Stage.OPEN:
            raise AdapterOutOfOrder("set_device after open", hint="close the adapter first")
        self._device = device
        self._stage = Stage.DEVICE_SET

    def open(self) -> None:
        """Creates the device's context.

        Raises:
            AdapterOutOfOrder: before `set_device`.
        """
        self._require(Stage.DEVICE_SET, "open")
        if self._stage is not Stage.OPEN:
            self._open()
            self._stage = Stage.OPEN

    def close(self) -> None:
        """Releases the context; what was allocated is invalid afterwards."""
        if self._stage is Stage.OPEN:
            self._close()
            self._stage = Stage.DEVICE_SET

    def _require(self, stage: Stage, call: str) -> None:
        if self._stage < stage:
            needed = {Stage.DEVICE_SET: "set_device", Stage.OPEN: "open"}[stage]
            raise AdapterOutOfOrder(f"{call} before {needed}", hint=f"call {needed}() first")

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def _close(self) -> None: ...
