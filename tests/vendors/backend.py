"""A stand-in for `torch.cuda` and its like: a log, and a clock that a script advances. Tensors stay on the CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass
class FakeStream:
    name: str
    log: list[str]

    def wait_stream(self, other: "FakeStream") -> None:
        self.log.append(f"{self.name} waits for {other.name}")


@dataclass
class FakeEvent:
    backend: "FakeBackend"
    timed: bool
    at_s: float = 0.0

    def record(self, stream: FakeStream | None = None) -> None:
        self.at_s = self.backend.clock_s
        self.backend.log.append(f"record in {(stream or self.backend.current).name}")

    def query(self) -> bool:
        return self.backend.gate_is_short

    def synchronize(self) -> None:
        self.backend.log.append("wait")

    def elapsed_time(self, end: "FakeEvent") -> float:
        assert self.timed
        assert end.timed
        return 1e3 * (end.at_s - self.at_s)


@dataclass
class FakeBackend:
    """What an adapter may call.

    Attributes:
        addresses: PCI domain, bus and device of each device that torch sees, null where it does not tell.
        gate_is_short: whether the spinning kernel is over before the calls are queued.
    """

    addresses: list[tuple[int, int, int] | None] = field(default_factory=lambda: [None])
    gate_is_short: bool = False
    broken: str = ""
    clock_s: float = 0.0
    log: list[str] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    index: int | None = None

    def __post_init__(self) -> None:
        self.current = FakeStream("main", self.log)

    def device_count(self) -> int:
        return len(self.addresses)

    def get_device_properties(self, index: int) -> Any:
        address = self.addresses[index]
        return SimpleNamespace(
            **dict(zip(("pci_domain_id", "pci_bus_id", "pci_device_id"), address or (), strict=False))
        )

    def set_device(self, index: int) -> None:
        if self.broken:
            raise RuntimeError(self.broken)
        self.index = index

    def synchronize(self, index: int) -> None:
        self.log.append(f"synchronize {index}")

    def mem_get_info(self, index: int) -> tuple[int, int]:
        return (60, 100 + index)

    def empty_cache(self) -> None:
        self.log.append("empty")

    def Stream(self, device: int) -> FakeStream:  # noqa: N802 - the name of torch
        return FakeStream(f"copy on {device}", self.log)

    def Event(self, *, enable_timing: bool = False) -> FakeEvent:  # noqa: N802 - the name of torch
        return FakeEvent(self, enable_timing)

    def current_stream(self, index: int) -> FakeStream:
        assert index == self.index
        return self.current

    @contextmanager
    def stream(self, stream: FakeStream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before

    @contextmanager
    def device(self, index: int) -> Iterator[None]:
        assert index == self.index
        yield

    def _sleep(self, cycles: int) -> None:
        self.held.append(cycles)
        self.clock_s += 1.0
