"""The verbs as functions: the only place that wires the packages together."""

from vllm_probe.api.adapters import check_adapter, scaffold_adapter
from vllm_probe.api.advising import blocker, next_step, refusal
from vllm_probe.api.checking import disagreement
from vllm_probe.api.exporting import export, kept_config
from vllm_probe.api.looking import descriptors, discover, doctor, inventory, open_host, search
from vllm_probe.api.measuring import bench
from vllm_probe.api.negotiating import negotiate
from vllm_probe.api.serving import admitted, compiling, load_runtime, rehearse, serve, serving_config
from vllm_probe.api.serving_vllm import serve_vllm, vllm_run

__all__ = [
    "admitted",
    "bench",
    "blocker",
    "check_adapter",
    "compiling",
    "descriptors",
    "disagreement",
    "discover",
    "doctor",
    "export",
    "inventory",
    "kept_config",
    "load_runtime",
    "negotiate",
    "next_step",
    "open_host",
    "refusal",
    "rehearse",
    "scaffold_adapter",
    "search",
    "serve",
    "serve_vllm",
    "serving_config",
    "vllm_run",
]
