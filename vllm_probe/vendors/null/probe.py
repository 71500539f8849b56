"""Describes `null0` from the script."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from vllm_probe.core import codec
from vllm_probe.core.device import Device, DeviceMemory, Verdict
from vllm_probe.core.files import read_json
from vllm_probe.core.plugin import ProbeResult
from vllm_probe.core.system import Host
from vllm_probe.core.values import Bytes, Count, Natural, Rate

Curve: TypeAlias = tuple[tuple[Count, Rate], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """How the device behaves: the JSON file that `VLLM_PROBE_NULL_SCRIPT` names.

    Attributes:
        rates_gflops: per number format pairs of rows and 1e9 operations per second; a rate holds from its rows on.
        bandwidth_gb_s: memory bandwidth, 1e9 bytes per second.
        launch_us: time that every call takes besides.
        link_gb_s: most that all transfers between host and device reach together, each way, from pinned memory.
        queue_gb_s: most that one queue reaches.
        pageable_gb_s: transfers from and to pageable memory.
        copy_queues: queues whose transfers run at the same time.
        clock_mhz: clock, which the rates of products follow.
        throttle_s: time of work after which the clock falls, null for never.
        throttled_mhz: clock after that.
        memory_bytes: capacity.
        noise_pct: largest relative deviation of a timed batch, in percent.
        seed: start of the noise.
        faults: `allocate`, `copy`, `read`, `triad` or `linear.<format>` to the text of the error that it raises;
            `hang` lets it never return.
    """

    rates_gflops: dict[str, Curve] = field(
        default_factory=lambda: {"fp32": ((1, 100.0),), "bf16": ((1, 50.0), (512, 200.0)), "int8": ((1, 400.0),)}
    )
    bandwidth_gb_s: Rate = 100.0
    launch_us: Rate = 5.0
    link_gb_s: Rate = 25.0
    queue_gb_s: Rate = 25.0
    pageable_gb_s: Rate = 10.0
    copy_queues: Count = 8
    clock_mhz: Rate = 2000.0
    throttle_s: Rate | None = None
    throttled_mhz: Rate = 2000.0
    memory_bytes: Bytes = 8 << 30
    noise_pct: Rate = 0.0
    seed: Natural = 0
    faults: dict[str, str] = field(default_factory=dict)


def load_script(host: Host) -> Script:
    """The script of this process, or the default one.

    Raises:
        InputError: the named file cannot be read or is not a script.
    """
    name = host.env("VLLM_PROBE_NULL_SCRIPT")
    return codec.from_json(Script, read_json(Path(name))) if name else Script()


def probe(host: Host) -> ProbeResult:
    """The one scripted device."""
    size = load_script(host).memory_bytes
    device = Device(
        id="null0",
        vendor="null",
        kind="gpu",
        name="scripted device",
        arch="null",
        driver="null 1",
        memory=DeviceMemory(reported_bytes=size, usable_bytes=size, used_bytes=0, kind="dedicated"),
        adapter="null",
        usable=True,
        verdict=Verdict(code="usable", reason="scripted, not a real device"),
        sources={"/memory/reported_bytes": "script"},
    )
    return ProbeResult(devices=(device,))
