"""The topology that the kernel's compute driver (KFD) shows in sysfs: compute units, partitions, memory that HIP gets.

The files: https://www.kernel.org/doc/html/latest/gpu/amdgpu/index.html and drivers/gpu/drm/amd/amdkfd/kfd_topology.c.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from vllm_probe.core.system import Host

_KFD = "/sys/class/kfd/kfd"
NODES = f"{_KFD}/topology/nodes"
_LOCAL_HEAPS = (1, 2)  # HSA_MEM_HEAP_TYPE_FB_PUBLIC and _PRIVATE of kfd_crat.h; 0 is the processor's memory
_UNKNOWN_WIDTH = 0xFFFFFFFF

_WORDS_PER_CLOCK = {
    2: ("gfx900", "gfx904", "gfx906", "gfx908", "gfx90a", "gfx1011"),
    4: ("gfx942", "gfx950"),
    16: (
        *("gfx1010", "gfx1012", "gfx1030", "gfx1031", "gfx1032", "gfx1034"),
        *("gfx1100", "gfx1101", "gfx1102", "gfx1200", "gfx1201"),
    ),
}
"""Transfers in a cycle of the memory clock that KFD gives: HBM2, HBM3, GDDR6. Checked against
https://rocm.docs.amd.com/en/latest/reference/gpu-arch-specs.html: MI210 4096 bits at 1600 MHz, 1638 GB/s; MI300X 8192
at 1300, 5325; RX 9060 XT 128 at 1258, 322. Left out: chips that were sold with two kinds of memory, and those without
memory of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bank:
    """Memory of a node.

    Attributes:
        size_bytes: size.
        used_bytes: in use now, null where the kernel does not tell.
        width_bits: width of its bus, null where unknown.
        clock_mhz: highest clock, null where unknown.
    """

    size_bytes: int
    used_bytes: int | None = None
    width_bits: int | None = None
    clock_mhz: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A GPU, or a partition of one.

    Attributes:
        number: of the node; HIP counts in this order.
        properties: what its file `properties` holds.
        banks: its own memory.
    """

    number: int
    properties: Mapping[str, int] = field(default_factory=dict)
    banks: tuple[Bank, ...] = ()

    @property
    def arch(self) -> str | None:
        """`gfx90a`; kernels before 5.15 do not tell."""
        return gfx_name(self.properties.get("gfx_target_version", 0))

    @property
    def compute_units(self) -> int | None:
        """Compute units; null where the kernel does not tell how many SIMDs each has."""
        simds, each = self.properties.get("simd_count", 0), self.properties.get("simd_per_cu", 0)
        return simds // each if simds and each else None

    @property
    def slot(self) -> str:
        """`0000:05:00`: its PCI address without the function."""
        location, domain = self.properties.get("location_id", 0), self.properties.get("domain", 0)
        return f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 31:02x}"

    @property
    def function(self) -> int:
        """PCI function, or of a partition, its number: a partition has no function of its own."""
        return self.properties.get("location_id", 0) & 7

    @property
    def memory_bytes(self) -> int | None:
        """What HIP gives as its memory; kernels before 4.18 wrote it into `local_mem_size`."""
        return sum(bank.size_bytes for bank in self.banks) or self.properties.get("local_mem_size") or None

    @property
    def used_bytes(self) -> int | None:
        """Memory in use now."""
        used = [bank.used_bytes for bank in self.banks]
        return sum(each for each in used if each is not None) if used and None not in used else None

    @property
    def bandwidth_gb_s(self) -> float | None:
        """Of its memory at the highest clock, from its width and the kind of memory that its architecture has."""
        words = next((words for words, names in _WORDS_PER_CLOCK.items() if self.arch in names), None)
        rates = [(bank.width_bits or 0) / 8 * (bank.clock_mhz or 0) for bank in self.banks]
        return round(rates[0] * words / 1000, 1) if words and len(rates) == 1 and rates[0] else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """What KFD shows.

    Attributes:
        present: KFD is there.
        nodes: GPUs by number.
        refused: numbers of nodes that exist and may not be read.
    """

    present: bool
    nodes: tuple[Node, ...] = ()
    refused: tuple[int, ...] = ()


def read_topology(host: Host) -> Topology:
    """The GPUs that KFD shows this process; the kernel refuses to tell of one that the device cgroup denies."""
    nodes, refused = [], []
    paths = host.glob(f"{NODES}/*/properties")
    for path in sorted(paths, key=_number):
        text = host.read_text(path)
        if text is None:
            refused.append(_number(path))
        elif (properties := parse_properties(text)).get("simd_count"):
            banks = _banks(host, path.rpartition("/")[0])
            nodes.append(Node(number=_number(path), properties=properties, banks=banks))
    return Topology(present=bool(paths), nodes=tuple(nodes), refused=tuple(refused))


def read_processes(host: Host, node: Node) -> list[tuple[int, int]]:
    """Number of each process that has memory of `node`, and the bytes; KFD lists those that use another GPU with 0."""
    gpu = (host.read_text(f"{NODES}/{node.number}/gpu_id") or "").strip()
    found = []
    for path in host.glob(f"{_KFD}/proc/[0-9]*/vram_{gpu}") if re.fullmatch(r"[1-9][0-9]{0,9}", gpu) else ():
        used = (host.read_text(path) or "").strip()
        if re.fullmatch(r"[1-9][0-9]{0,19}", used):
            found.append((int(path.split("/")[-2]), int(used)))
    return sorted(found)


def parse_properties(text: str) -> dict[str, int]:
    """The numbers in lines such as `simd_count 152`."""
    return {key: int(value) for key, value in re.findall(r"^(\w{1,64}) ([0-9]{1,20})$", text, re.MULTILINE)}


def gfx_name(version: int) -> str | None:
    """`gfx90a` of 90010: major, minor and step, the last two in hexadecimal; null for 0 and what is no version."""
    major, minor, step = version // 10000, version // 100 % 100, version % 100
    return f"gfx{major}{minor:x}{step:x}" if 0 < major < 100 and minor < 16 and step < 16 else None


def _banks(host: Host, folder: str) -> tuple[Bank, ...]:
    banks = []
    for path in host.glob(f"{folder}/mem_banks/*/properties"):
        values = parse_properties(host.read_text(path) or "")
        if values.get("heap_type") in _LOCAL_HEAPS and values.get("size_in_bytes"):
            used = (host.read_text(f"{path.rpartition('/')[0]}/used_memory") or "").strip()
            width = values.get("width")
            banks.append(
                Bank(
                    size_bytes=values["size_in_bytes"],
                    used_bytes=int(used) if re.fullmatch(r"[0-9]{1,20}", used) else None,
                    width_bits=width if width != _UNKNOWN_WIDTH else None,
                    clock_mhz=values.get("mem_clk_max"),
                )
            )
    return tuple(banks)


def _number(path: str) -> int:
    name = path.removeprefix(f"{NODES}/").partition("/")[0]
    return int(name) if re.fullmatch(r"[0-9]{1,6}", name) else 1 << 20
