"""capability.json: what one device can do. Version 1 is the same keys, written by hand."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from vllm_probe.core.document import Document
from vllm_probe.core.values import Bytes, Count, FenceScope, JsonValue, MemoryKind, Natural, Rate, Version

Source: TypeAlias = Literal["measured", "queried", "datasheet", "derived"]
Status: TypeAlias = Literal["measured", "unsupported", "error", "skipped", "noisy", "suspect", "throttled"]
Confidence: TypeAlias = Literal["high", "medium", "low"]
Judgement: TypeAlias = Literal["normal", "low", "suspect"]
HELD_DOWN = "held down by"
"""How the reason of a value begins that the device itself kept low, by heat for instance, and not other work on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Everything about one value of the document, which stands under the same JSON pointer.

    Attributes:
        source: measured, queried, datasheet or derived.
        status: whether the value counts, and if it is null or doubtful, how.
        reason: why the value is null, doubtful or where it comes from.
        confidence: high, medium or low; null where nothing was measured.
        verdict: normal, low or suspect against what such a device should reach; null when unknown.
        unit: unit of the value.
        samples: number of timed batches.
        spread_pct: (max - min) / median of the round medians, in percent.
        method: what ran, with the byte or FLOP convention.
        implementation: name of the adapter's implementation that was measured.
        clock_mhz: mean clock while measuring; in a data sheet the clock at which the value holds.
        lowest_clock_mhz: lowest clock while measuring.
        pct_of_peak: value over the theoretical peak at the observed clock, in percent; null when either is unknown.
    """

    source: Source
    status: Status
    reason: str | None = None
    confidence: Confidence | None = None
    verdict: Judgement | None = None
    unit: str | None = None
    samples: Natural | None = None
    spread_pct: Rate | None = None
    method: str | None = None
    implementation: str | None = None
    clock_mhz: Rate | None = None
    lowest_clock_mhz: Rate | None = None
    pct_of_peak: Rate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceIdentity:
    """Which device a capability document describes.

    Attributes:
        id: address on the machine it was measured on.
        vendor: vendor plug-in.
        kind: cpu, gpu, igpu or npu.
        name: marketing name.
        also: other names that drivers and libraries give to the same device.
        arch: architecture.
        driver: driver name and version.
        bus_ids: bus addresses.
        partition: name of the slice, null for a whole device.
        num_units: physical cores, compute units or multiprocessors available.
        torch: version of torch that measured it.
    """

    id: str | None = None
    vendor: str | None = None
    kind: str | None = None
    name: str | None = None
    also: tuple[str, ...] = ()
    arch: str | None = None
    driver: str | None = None
    bus_ids: tuple[str, ...] = ()
    partition: str | None = None
    num_units: Count | None = None
    torch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeUnit:
    """Dense matrix product in one number format, a multiply-add counted as 2.

    Attributes:
        throughput_gflops: burst rate at the best shape, 1e9 operations per second.
        sustained_gflops: rate once clocks have settled.
        quantizing_gflops: int8 only: rate of the product where bf16 activations are quantized by row in every call.
        max_threads: threads resident on the device.
        curve: pairs of activation rows and rate, in 1e9 operations per second.
    """

    throughput_gflops: Rate | None = None
    sustained_gflops: Rate | None = None
    quantizing_gflops: Rate | None = None
    max_threads: Count | None = None
    curve: tuple[tuple[Count, Rate], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightOnly:
    """Weight-only quantized linear, computed in a wider format: not a compute rate.

    Attributes:
        curve: triples of activation rows, weight GB/s and GFLOP/s.
    """

    curve: tuple[tuple[Count, Rate, Rate], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCapability:
    """Device memory; 1 GB is 1e9 bytes, credited bytes only.

    Attributes:
        total_bytes: capacity.
        usable_bytes: what a process may allocate.
        kind: dedicated, unified, shared or partition.
        bandwidth_gb_s: headline: read_gb_s on CPUs, triad_gb_s elsewhere.
        read_gb_s: reduction over an array larger than every cache.
        copy_gb_s: copy, read and write counted.
        triad_gb_s: a = b + s * c, three arrays counted.
        streaming_copy_gb_s: copy with stores that bypass the caches, read and write counted.
        cached_read_gb_s: reduction over an array that the caches of the cores hold.
        alignment_bytes: alignment that allocations and blocks must keep.
        observed_alignment_bytes: largest power of two that the addresses of small allocations are multiples of.
        full_rate_alignment_bytes: smallest step between addresses at all of which a copy has its full rate.
        managed_memory_supported: whether host and device can share an allocation.
    """

    total_bytes: Bytes | None = None
    usable_bytes: Bytes | None = None
    kind: MemoryKind | None = None
    bandwidth_gb_s: Rate | None = None
    read_gb_s: Rate | None = None
    copy_gb_s: Rate | None = None
    triad_gb_s: Rate | None = None
    streaming_copy_gb_s: Rate | None = None
    cached_read_gb_s: Rate | None = None
    alignment_bytes: Count | None = None
    observed_alignment_bytes: Count | None = None
    full_rate_alignment_bytes: Count | None = None
    managed_memory_supported: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dma:
    """Transfers between host and device.

    Attributes:
        engine_count: copy engines.
        max_concurrent_transfers: transfers worth overlapping.
        h2d_pinned_gb_s: host to device from pinned memory.
        d2h_pinned_gb_s: device to host into pinned memory.
        h2d_pageable_gb_s: host to device from pageable memory.
        d2h_pageable_gb_s: device to host into pageable memory.
        h2d_pinned_latency_us: what a transfer takes apart from its bytes, likewise below.
        d2h_pinned_latency_us: device to host into pinned memory.
        h2d_pageable_latency_us: host to device from pageable memory.
        d2h_pageable_latency_us: device to host into pageable memory.
        concurrency_curve: pairs of concurrent transfers and aggregate GB/s, host to device in large chunks.
        small_concurrency_curve: the same in chunks of 1 MiB.
        max_concurrent_small_transfers: transfers of 1 MiB worth overlapping.
        duplex_gain: rate of both directions at once over that of the faster one alone.
        cpu_bypass: whether a transfer from pinned memory goes on while the processor does something else.
        copy_compute_slowdown: time of a transfer and matrix products at once over that of the longer of them alone.
        peer_gb_s: from one device to another past the host.
    """

    engine_count: Natural | None = None
    max_concurrent_transfers: Natural | None = None
    h2d_pinned_gb_s: Rate | None = None
    d2h_pinned_gb_s: Rate | None = None
    h2d_pageable_gb_s: Rate | None = None
    d2h_pageable_gb_s: Rate | None = None
    h2d_pinned_latency_us: Rate | None = None
    d2h_pinned_latency_us: Rate | None = None
    h2d_pageable_latency_us: Rate | None = None
    d2h_pageable_latency_us: Rate | None = None
    concurrency_curve: tuple[tuple[Count, Rate], ...] = ()
    small_concurrency_curve: tuple[tuple[Count, Rate], ...] = ()
    max_concurrent_small_transfers: Natural | None = None
    duplex_gain: Rate | None = None
    cpu_bypass: bool | None = None
    copy_compute_slowdown: Rate | None = None
    peer_gb_s: Rate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How work is issued.

    Attributes:
        group_width: lanes that execute together: native, supported and optimal.
        matrix_instructions: matrix or dot-product instruction sets present.
        memory_fence_scope: widest fence that the device offers.
        launch_overhead_us: time from call to completion of an empty operation.
        issue_us: time that the processor needs to issue an empty operation.
        allocation_us: time that an allocation takes.
    """

    group_width: dict[str, JsonValue] = field(default_factory=dict)
    matrix_instructions: tuple[str, ...] = ()
    memory_fence_scope: FenceScope | None = None
    launch_overhead_us: Rate | None = None
    issue_us: Rate | None = None
    allocation_us: Rate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thermal:
    """Burst against sustained.

    Attributes:
        burst_gflops: rate of the first seconds.
        sustained_gflops: rate once clocks have settled.
        ratio: sustained over burst.
        seconds_to_throttle: time until the clock first dropped, null if it did not.
    """

    burst_gflops: Rate | None = None
    sustained_gflops: Rate | None = None
    ratio: Rate | None = None
    seconds_to_throttle: Rate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability(Document):
    """Capability descriptor of one device.

    Attributes:
        schema_version: `2.0`; absent in a version-1 document.
        device_type: first device type of the vendor plug-in, an open word.
        compute_units: per number format; the absence of one means it was not looked at.
        memory: capacity, bandwidth, alignment.
        dma: transfers.
        device: identity.
        weight_only: per weight format.
        cache: sizes in bytes by level.
        execution: issue and fences.
        primitives: per primitive the implementation that won and by how much.
        thermal: burst against sustained.
        measurements: JSON pointer of a value to how it was obtained.
    """

    schema_version: Version = "1.0"
    device_type: str
    compute_units: dict[str, ComputeUnit]
    memory: MemoryCapability
    dma: Dma
    device: DeviceIdentity = field(default_factory=DeviceIdentity)
    weight_only: dict[str, WeightOnly] = field(default_factory=dict)
    cache: dict[str, Bytes] = field(default_factory=dict)
    execution: Execution = field(default_factory=Execution)
    primitives: dict[str, dict[str, JsonValue]] = field(default_factory=dict)
    thermal: Thermal = field(default_factory=Thermal)
    measurements: dict[str, Measurement] = field(default_factory=dict)
