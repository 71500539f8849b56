"""What is asked once for all AMD GPUs of a machine: nodes are opened, libraries asked, and tools where those lack."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from vllm_probe.core.errors import LibraryTimeout, LibraryUnavailable
from vllm_probe.core.system import Host
from vllm_probe.vendors.amd.amd_smi import parse_amd_smi
from vllm_probe.vendors.amd.kfd import Topology
from vllm_probe.vendors.amd.rocm_smi import parse_rocm_smi
from vllm_probe.vendors.amd.verdict import Machine
from vllm_probe.vendors.layer0 import node_verdict
from vllm_probe.vendors.nodes import node_facts, read_identity

_LIB = "vllm_probe.vendors.amd.lib"
_CHILD_S = 4.0
_TOOL_S = 2.5
_TOOLS_S = 5.0
ROCM_SMI = (
    *("rocm-smi", "--showid", "--showproductname", "--showbus", "--showdriverversion", "--showmeminfo", "all"),
    *("--showuse", "--showtemp", "--showpower", "--json"),
)


def open_nodes(host: Host, paths: Sequence[str]) -> tuple[dict[str, int], dict[str, str]]:
    """Node to the errno of opening it, and to what its mode denies."""
    identity, errors, denials = read_identity(host), {}, {}
    for path in paths:
        errors[path] = host.open_errno(path)
        fact = node_facts(host, path, identity)
        if errors[path] and fact["state"] == "denied":
            denials[path] = node_verdict(host, fact, "").reason
    return errors, denials


def ask_runtime(host: Host, topology: Topology, nodes: Sequence[str], asleep: frozenset[str]) -> Machine:
    """Opens `nodes` and starts the ROCm runtime, unless a GPU sleeps that this would wake."""
    errors, denials = open_nodes(host, nodes)
    machine = Machine(
        listed=topology.present, refused=bool(topology.refused), errors=errors, denials=denials, asleep=asleep
    )
    if asleep:
        return replace(machine, silence=f"the ROCm runtime was not asked, because that wakes {min(asleep)}")
    try:
        answer = host.isolated(f"{_LIB}:runtime", _CHILD_S)
    except LibraryTimeout:
        return replace(machine, silence=f"hsa_init did not return within {_CHILD_S:g} s")
    except LibraryUnavailable as error:
        return replace(machine, silence=str(error).replace(f"{_LIB}:runtime", "hsa_init"), broken=True)
    missing = "no ROCm runtime is installed, which torch's ROCm build brings"
    return replace(machine, status=answer.get("status"), silence="" if answer else missing)


def ask(host: Host, function: str) -> list[dict[str, Any]]:
    """What `function` of lib.py says of each card; none where its library is missing, hangs or crashes."""
    try:
        devices: list[dict[str, Any]] = host.isolated(f"{_LIB}:{function}", _CHILD_S)["devices"]
    except LibraryUnavailable:
        return []
    return devices


def ask_tools(host: Host) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Name of each tool that lists cards, and the cards: amd-smi, then rocm-smi, run only when it is asked for.

    Where amd-smi hangs, rocm-smi, which asks the same driver, is not run; both share one time limit.
    """
    deadline = host.now() + _TOOLS_S
    static = host.run(("amd-smi", "static", "--json"), _TOOL_S)
    if static.status == "timeout":
        return
    if cards := parse_amd_smi(static.stdout):
        metric = host.run(("amd-smi", "metric", "--json"), _TOOL_S)
        now = {row.get("index"): row for row in parse_amd_smi(metric.stdout)}
        yield "amd-smi", [now.get(card.get("index"), {}) | card for card in cards]
    left = min(_TOOL_S, deadline - host.now())
    if left > 0 and (cards := parse_rocm_smi(host.run(ROCM_SMI, left).stdout)):
        yield "rocm-smi", cards


def has_module(host: Host, name: str) -> bool:
    """Whether a Python package is installed; it is not imported."""
    return any(host.glob(f"{site}/{name}/__init__.py") for site in host.platform().site_packages)
