"""Models and descriptors that the tests of this folder share."""

from typing import Any

from vllm_probe.core.capability import Capability
from vllm_probe.core.codec import from_json
from vllm_probe.core.config import Decision, RuntimeConfig
from vllm_probe.core.document import Stamp
from vllm_probe.core.model import ModelSpec
from vllm_probe.models import catalogue
from vllm_probe.negotiate.case import Case, open_case
from vllm_probe.negotiate.negotiate import negotiate
from vllm_probe.negotiate.request import Request
from vllm_probe.negotiate.select import Selection, choose

GIB = 1 << 30
STAMP = Stamp(created_at="2026-01-02T03:04:05Z", tool_version="0.1.0", host_fingerprint="sha256:0123456789abcdef")

EMBEDDING = catalogue.load("Qwen3-Embedding-0.6B")
MINILM = catalogue.load("all-MiniLM-L6-v2")
BGE_M3 = catalogue.load("bge-m3")
QWEN3_0_6B = catalogue.load("Qwen3-0.6B")
QWEN3_8B = catalogue.load("Qwen3-8B")
GLM_5_3 = catalogue.load("GLM-5.3")
LLAMA_8B = catalogue.load("Llama-3.1-8B")
QWEN3_30B_A3B = catalogue.load("Qwen3-30B-A3B")

ASCEND = {
    "device_type": "ascend",
    "compute_units": {
        "fp16": {"max_threads": 4096, "throughput_gflops": 128},
        "int4": {"max_threads": 8192, "throughput_gflops": 256},
    },
    "memory": {"bandwidth_gb_s": 2048, "alignment_bytes": 256, "managed_memory_supported": False},
    "dma": {"engine_count": 4, "max_concurrent_transfers": 16},
}
ARC = {
    "device_type": "intel_xpu",
    "compute_units": {
        "fp16": {"max_threads": 8192, "throughput_gflops": 240},
        "int4": {"max_threads": 16384, "throughput_gflops": 480},
    },
    "memory": {"bandwidth_gb_s": 512, "alignment_bytes": 64, "managed_memory_supported": True},
    "dma": {"engine_count": 2, "max_concurrent_transfers": 8},
}
RTX = {
    "device_type": "nvidia",
    "compute_units": {
        "fp16": {"max_threads": 36864, "throughput_gflops": 29000},
        "int8": {"max_threads": 36864, "throughput_gflops": 116000},
    },
    "memory": {"bandwidth_gb_s": 256, "alignment_bytes": 256, "managed_memory_supported": True},
    "dma": {"engine_count": 2, "max_concurrent_transfers": 4},
}
H100: dict[str, Any] = {
    "schema_version": "2.0",
    "device_type": "nvidia",
    "device": {"id": "0000:06:00.0", "vendor": "nvidia", "kind": "gpu", "arch": "sm_90"},
    "compute_units": {"bf16": {"throughput_gflops": 790000}, "fp16": {"throughput_gflops": 795000}},
    "memory": {"total_bytes": round(79.19 * GIB), "kind": "dedicated", "bandwidth_gb_s": 3000, "alignment_bytes": 256},
    "dma": {"max_concurrent_transfers": 2},
}
CPU = {
    "schema_version": "2.0",
    "host_fingerprint": "sha256:0123456789abcdef",
    "device_type": "cpu",
    "device": {"id": "cpu0", "vendor": "cpu", "kind": "cpu", "arch": "avx512_bf16", "num_units": 2},
    "compute_units": {
        "bf16": {
            "throughput_gflops": 974,
            "curve": [[32, 410], [64, 640], [128, 800], [256, 900], [512, 960], [1024, 974], [4096, 870]],
        },
        "fp32": {"throughput_gflops": 213},
        "fp16": {"throughput_gflops": 56},
        "int8": {"throughput_gflops": 1900},
    },
    "memory": {
        "total_bytes": 23 * GIB, "usable_bytes": 22 * GIB, "kind": "shared", "bandwidth_gb_s": 34,
        "alignment_bytes": 64,
    },
    "dma": {},
    "execution": {
        "matrix_instructions": ["avx512_bf16", "avx512_vnni"], "group_width": {"native": 16},
        "memory_fence_scope": "none",
    },
    "primitives": {"linear": {"bf16": {"implementation": "mkldnn"}, "fp32": {"implementation": "linear"}}},
    "measurements": {
        f"/compute_units/{word}/throughput_gflops": {"source": "measured", "status": "measured"}
        for word in ("bf16", "fp32", "fp16", "int8")
    },
}  # fmt: skip


def descriptor(document: dict[str, Any], **sections: Any) -> Capability:
    """The document with some of its sections' keys replaced."""
    merged = {key: document.get(key, {}) | value for key, value in sections.items()}
    return from_json(Capability, document | merged)


def case(spec: ModelSpec, document: dict[str, Any], **request: Any) -> Case:
    return open_case(spec, descriptor(document), Request(**request))


def selection(spec: ModelSpec, document: dict[str, Any], **request: Any) -> Selection:
    return choose(case(spec, document, **request))


def config(spec: ModelSpec, document: dict[str, Any] | Capability, **request: Any) -> RuntimeConfig:
    known = document if isinstance(document, Capability) else descriptor(document)
    return negotiate(spec, known, Request(**request), STAMP)


def decision(found: RuntimeConfig, key: str) -> Decision:
    return next(each for each in found.decisions if each.key == key)


def rejections(found: RuntimeConfig, key: str) -> dict[Any, str]:
    return {each.value: each.because for each in decision(found, key).rejected}
