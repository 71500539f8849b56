"""The block size that an engine takes by itself, by kind of attention and architecture, and those that it takes."""

import re
from dataclasses import dataclass

from vllm_probe.core.capability import Capability
from vllm_probe.core.errors import BadUsage
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.releases import at_version
from vllm_probe.negotiate.laws import Row, device_row, table
from vllm_probe.negotiate.layers import groups_of
from vllm_probe.negotiate.request import Request

_WORDS = {
    "plain": "",
    "latent": "latent attention",
    "sparse": "sparse latent attention",
    "compressed": "compressed attention",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRule:
    """Blocks of one model on one device.

    Attributes:
        size: tokens of a block where none are asked for.
        takes: sizes that may be asked for.
        attention: kind of attention that decided, empty where the device type alone did.
        source: where both are from.
    """

    size: int
    takes: tuple[int, ...]
    attention: str
    source: str


def block_rule(spec: ModelSpec, capability: Capability, request: Request, version: str) -> BlockRule:
    """The blocks of `spec` with the engine of `request`; the device type's, where no law names its attention."""
    name, device = device_row(capability.device_type)
    sizes, attention = tuple(device["block_sizes"]), _attention(spec)
    rows = table("blocks")["rows"] if request.engine == "vllm" else ()
    for row in rows:
        if attention in row["attention"] and name in row["types"] and is_on(row, capability):
            takes = tuple(size for size in sizes if size in (row["takes"] or sizes))
            size = at_version(row["size"], version)
            return BlockRule(size=size, takes=takes, attention=_WORDS[attention], source=row["source"])
    return BlockRule(size=device["block_size"], takes=sizes, attention="", source=device["block_source"])


def check_block_size(request: Request, spec: ModelSpec, device_type: str, rule: BlockRule) -> None:
    """Accepts a pinned block size that the engine takes for this model on this device type.

    Raises:
        BadUsage: it takes only others.
    """
    pinned = request.pins.get("block_size")
    if pinned is not None and pinned not in rule.takes:
        where = "this device" if device_type == "*" else device_type
        message = f"--block-size {pinned}: {request.engine} on {where} takes no blocks of so many tokens"
        message += f" for the {rule.attention} of {spec.name}" if rule.attention else ""
        raise BadUsage(message, hint=f"give one of {', '.join(map(str, rule.takes))}, or none")


def doubt_of_blocks(request: Request, spec: ModelSpec, rule: BlockRule) -> str | None:
    """That a pinned block size costs the kernels which the engine would take first; null where it does not."""
    pinned = request.pins.get("block_size")
    if not rule.attention or pinned is None or pinned % rule.size == 0:
        return None
    kernels = f"the kernels that {request.engine} takes first for the {rule.attention} of {spec.name}"
    return f"--block-size {pinned}: {kernels} want a multiple of {rule.size}, others are slower"


def _attention(spec: ModelSpec) -> str:
    groups = groups_of(spec)
    if any(group.kind == "compressed" for group in groups):
        return "compressed"
    if spec.mla is None:
        return "plain"
    return "sparse" if any(group.index_top for group in groups) else "latent"


def is_on(row: Row, capability: Capability) -> bool:
    """Whether a row is for the architecture and the instructions of a device."""
    if not set(row.get("lacks", ())).isdisjoint(capability.execution.matrix_instructions):
        return False
    if "arch" not in row:
        return True
    prefix, first, last = row["arch"]
    number = re.fullmatch(rf"{prefix}(\d+)[a-z]?", capability.device.arch or "")
    return number is not None and first <= int(number[1]) <= last
