"""AMD and Intel GPUs whose nodes are not there, or may not be opened: CTR-11 to CTR-15."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from vllm_probe.core.device import Device, Finding
from vllm_probe.core.plugin import Check, ContainerAccess
from vllm_probe.core.system import Host
from vllm_probe.detect.checks import ROWS
from vllm_probe.detect.nodes import Refusal, group_number, lxc_lines, refusal
from vllm_probe.vendors import amd, intel
from vllm_probe.vendors.nodes import group_word
from vllm_probe.vendors.pci import ROOT, PciFunction, accelerators
from vllm_probe.vendors.software import container_kind

CONTAINERS = ("docker", "podman", "kubernetes", "lxc")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How the GPUs of one PCI vendor are reached.

    Attributes:
        drivers: kernel drivers that offer the nodes.
        given: what a container needs; of its `groups_of` one node each must open.
        options: what else `docker run` needs.
        effect: what that changes.
        hidden: row for nodes that are not there.
        denied: row for nodes of another group.
    """

    drivers: tuple[str, ...]
    given: ContainerAccess
    options: str = ""
    effect: str = "needs a new container"
    hidden: str
    denied: str


AMD = Access(
    drivers=("amdgpu",),
    given=amd.PLUGIN.container,
    options=" --security-opt seccomp=unconfined --ipc=host",
    effect="a new container that may make every system call and shares the host's IPC",
    hidden="CTR-12",
    denied="CTR-13",
)
INTEL = Access(
    drivers=("i915", "xe"),
    given=intel.PLUGIN.container,
    hidden="CTR-14",
    denied="CTR-15",
)
ACCESS = {0x1002: AMD, 0x8086: INTEL}


def node_access(host: Host, devices: tuple[Device, ...], _log: str) -> Iterator[Finding]:
    """One finding for each GPU that a driver offers and this process cannot open.

    A container that has another GPU of the vendor, or a partition of one, may have been meant to have that alone.
    """
    inside = container_kind(host) in CONTAINERS
    refused = [(each, access, *_first_refusal(host, each, access)) for each, access in _offered(host, inside)]
    parts = {device.details.get("parent") for device in devices if device.verdict.code != "unusable"}
    opened = {function.vendor for function, _, _, state in refused if state is None or function.address in parts}
    for function, access, node, state in refused:
        facts = (function.evidence, f"{node}: {state}")
        if state is Refusal.LABEL:
            yield ROWS["CTR-11"].finding(function.address, facts)
        elif state is Refusal.GROUP:
            yield pass_in(host, access.denied, access, function, facts, node=node)
        elif state and inside:
            folder_hidden = node.startswith("/dev/dri/") and not host.exists("/dev/dri")
            shown = "/dev/dri" if folder_hidden else node
            finding = pass_in(host, access.hidden, access, function, facts, node=shown)
            if function.vendor in opened:
                finding = replace(finding, severity="latent", blocking=False)
            yield replace(finding, disables_device=False) if function.address in parts else finding
        elif state is Refusal.ABSENT and node == "/dev/kfd":
            yield ROWS["CTR-12/host"].finding(function.address, facts)


def pass_in(
    host: Host, row: str, access: Access, function: PciFunction | None, evidence: tuple[str, ...], *, node: str
) -> Finding:
    """The finding `row` with the options that open `node`; groups are numbers where the nodes show them."""
    driver = function.driver if function else None
    gates = [next(iter(host.glob(gate)), gate.replace("*", "128")) for gate in access.given.groups_of]
    numbers = {gate: group_number(host, gate) for gate in gates}
    groups = [number or f'"$(stat -c %g {gate})"' for gate, number in numbers.items()]
    number = group_number(host, node)
    return ROWS[row].finding(
        function.address if function else None,
        evidence,
        node=node,
        owner=number or "65534 (a user namespace hides its owner)",
        devices=" ".join(f"--device={name}" for name in access.given.nodes),
        nodes=" ".join(f"--device {name}" for name in access.given.nodes),
        groups=" ".join(dict.fromkeys(f"--group-add {group}" for group in groups)),
        options=access.options,
        effect=access.effect,
        resource=access.given.resource(None, driver or access.drivers[-1]),
        gate=gates[0],
        gid=number or "GID",
        group=group_word(host, number, node),
        lxc=lxc_lines(host, access.given.nodes),
    )


CHECKS = (Check(ids=("CTR-11", "CTR-12", "CTR-13", "CTR-14", "CTR-15"), run=node_access),)


def _offered(host: Host, inside: bool) -> list[tuple[PciFunction, Access]]:
    """The GPUs that are awake and have their driver, of which a container may not tell; no iGPU beside another."""
    functions = accelerators(host)
    return [
        (function, access)
        for function in functions
        if (access := ACCESS.get(function.vendor))
        and not function.asleep
        and not (function.kind == "igpu" and len(functions) > 1)
        and (function.driver in access.drivers or (inside and function.driver is None))
    ]


def _first_refusal(host: Host, function: PciFunction, access: Access) -> tuple[str, Refusal | None]:
    """The first gate that no node opens; sysfs tells the function's own render node, else any of them will do."""
    for gate in access.given.groups_of:
        own = [f"/dev/dri/{path.rpartition('/')[2]}" for path in host.glob(f"{ROOT}/{function.address}/drm/renderD*")]
        nodes = (own if "render" in gate else []) or host.glob(gate) or [gate.replace("*", "128")]
        states = [(node, refusal(host, node)) for node in nodes]
        if all(state for _, state in states):
            return states[0]
    return "", None
