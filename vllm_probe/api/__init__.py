"""The verbs as functions: the only place that wires the packages together."""

from vllm_probe.api.adapters import check_adapter, scaffold_adapter
from vllm_probe.api.looking import descriptors, discover, doctor, inventory, open_host, search
from vllm_probe.api.measuring import bench
from vllm_probe.api.negotiating import negotiate, next_step, refusal
from vllm_probe.api.serving import compiling, load_runtime, require_bundled, serve, serving_adapter, serving_config

__all__ = [
    "bench",
    "check_adapter",
    "compiling",
    "descriptors",
    "discover",
    "doctor",
    "inventory",
    "load_runtime",
    "negotiate",
    "next_step",
    "open_host",
    "refusal",
    "require_bundled",
    "scaffold_adapter",
    "search",
    "serve",
    "serving_adapter",
    "serving_config",
]
