"""KFD's topology: partitions, compute units, memory of each node, and what the kernel refuses to tell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.detect.scenes import host_of
from tests.unit.vendors.amd.hosts import KFD, NODES, capture_files, needs_captures
from vllm_probe.vendors.amd.kfd import Node, Topology, gfx_name, parse_properties, read_topology


def topology(files: dict[str, str]) -> Topology:
    return read_topology(host_of(files=files))


def captured(name: str) -> dict[int, Node]:
    files = capture_files(name, f"{NODES.removesuffix('nodes')}")
    return {node.number: node for node in topology(files).nodes}


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (90402, "gfx942"),
        (90010, "gfx90a"),
        (110501, "gfx1151"),
        (100306, "gfx1036"),
        (80003, "gfx803"),
        (0, None),
        (99, None),
        (90099, None),
    ],
)
def test_the_architecture_has_minor_and_step_in_hexadecimal(version: int, name: str | None) -> None:
    assert gfx_name(version) == name


def test_a_card_has_the_values_of_its_node_and_processors_are_no_gpus() -> None:
    (node,) = topology(KFD).nodes
    assert (node.number, node.arch, node.compute_units, node.slot, node.function) == (1, "gfx1100", 96, "0000:03:00", 0)
    assert (node.memory_bytes, node.used_bytes, node.bandwidth_gb_s) == (25753026560, None, 959.2)


def test_nodes_come_in_the_order_of_their_numbers() -> None:
    files = {f"{NODES}/{number}/properties": "simd_count 8\n" for number in (10, 9, 100)}
    assert [node.number for node in topology(files).nodes] == [9, 10, 100]


def test_a_node_that_exists_and_cannot_be_read_is_refused() -> None:
    found = topology(KFD | {f"{NODES}/2/properties": "!size 0 0444 0:0\n!absent"})
    assert found.refused == (2,)
    assert [node.number for node in found.nodes] == [1]


def test_without_kfd_nothing_is_present() -> None:
    assert topology({}) == Topology(present=False)


@pytest.mark.parametrize(
    ("bank", "size"),
    [
        ("heap_type 0\nsize_in_bytes 100\n", None),  # the processor's
        ("heap_type 2\nsize_in_bytes 100\n", 100),
        ("heap_type 1\nsize_in_bytes 0\n", None),
        ("heap_type 1\n", None),
    ],
)
def test_only_local_banks_with_a_size_are_memory(bank: str, size: int | None) -> None:
    (node,) = topology(KFD | {f"{NODES}/1/mem_banks/0/properties": bank}).nodes
    assert node.memory_bytes == size


@pytest.mark.parametrize(
    ("gfx", "width", "clock", "rate"),
    [
        (90010, 4096, 1600, 1638.4),
        (90402, 8192, 1300, 5324.8),
        (120000, 128, 1258, 322.0),
        (110000, 4294967295, 1249, None),
        (110000, 384, 0, None),
        (80003, 256, 2000, None),  # GDDR5 or HBM
        (110501, 256, 1000, None),  # of the machine
    ],
)
def test_bandwidth_follows_from_width_clock_and_the_kind_of_memory(
    gfx: int, width: int, clock: int, rate: float | None
) -> None:
    bank = f"heap_type 1\nsize_in_bytes 1\nwidth {width}\nmem_clk_max {clock}\n"
    properties = f"simd_count 8\ngfx_target_version {gfx}\n"
    files = {f"{NODES}/1/properties": properties, f"{NODES}/1/mem_banks/0/properties": bank}
    (node,) = topology(files).nodes
    assert node.bandwidth_gb_s == rate


def test_used_memory_is_told_of_every_bank_or_not_at_all() -> None:
    bank = KFD[f"{NODES}/1/mem_banks/0/properties"]
    second = KFD | {f"{NODES}/1/mem_banks/1/properties": bank, f"{NODES}/1/mem_banks/0/used_memory": "7\n"}
    (node,) = topology(second).nodes
    assert node.used_bytes is None
    (node,) = topology(second | {f"{NODES}/1/mem_banks/1/used_memory": "5\n"}).nodes
    assert (node.used_bytes, node.memory_bytes) == (12, 2 * 25753026560)


def test_the_number_of_a_device_on_its_bus_has_five_bits() -> None:
    node = Node(number=1, properties={"location_id": 0x83 << 8 | 0x1E << 3 | 5, "domain": 1})
    assert (node.slot, node.function) == ("0001:83:1e", 5)


@needs_captures
def test_partitions_of_an_mi300x_are_nodes_of_one_card() -> None:
    nodes = captured("kfd-mi300x-cpx-nodes.txt")
    assert set(nodes) == {2, 3, 10, 33}
    assert {node.arch for node in nodes.values()} == {"gfx942"}
    assert {node.compute_units for node in nodes.values()} == {38}
    assert [(nodes[n].slot, nodes[n].function) for n in (2, 3, 10, 33)] == [
        ("0000:05:00", 0),
        ("0000:05:00", 1),
        ("0000:27:00", 0),
        ("0000:65:00", 7),
    ]
    assert nodes[2].properties["unique_id"] == nodes[3].properties["unique_id"]
    assert nodes[2].memory_bytes is None


@needs_captures
def test_partitions_of_an_mi308x_have_memory_of_their_own() -> None:
    nodes = captured("kfd-mi308x-nps-nodes.txt")
    assert set(nodes) == {2, 3, 10}
    for node in nodes.values():
        assert (node.arch, node.compute_units, node.memory_bytes) == ("gfx942", 20, 51539607552)
    assert nodes[2].used_bytes == 2907979776


@needs_captures
def test_an_mi210_is_gfx90a_with_104_compute_units() -> None:
    assert {(node.arch, node.compute_units) for node in captured("kfd-mi210-nodes.txt").values()} == {("gfx90a", 104)}


@needs_captures
def test_an_old_kernel_tells_the_memory_elsewhere_and_no_architecture() -> None:
    node = captured("kfd-vega10-oldkernel-nodes.txt")[1]
    assert (node.arch, node.compute_units, node.memory_bytes) == (None, 64, 17163091968)


@given(st.text() | st.lists(st.sampled_from(["simd_count ", "0", "9", "\n", "-", "x"])).map("".join))
def test_any_text_gives_numbers_or_nothing(text: str) -> None:
    assert all(value >= 0 for value in parse_properties(text).values())


@given(st.integers(min_value=0, max_value=1 << 64))
def test_any_version_is_a_name_or_unknown(version: int) -> None:
    name = gfx_name(version)
    assert name is None or name.startswith("gfx")


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=30))
def test_a_topology_of_any_text_tells_no_memory_of_zero_bytes(properties: str, bank: str, used: str) -> None:
    files = {
        f"{NODES}/1/properties": f"simd_count 8\n{properties}",
        f"{NODES}/1/mem_banks/0/properties": f"{bank}\nheap_type 1\n",
        f"{NODES}/1/mem_banks/0/used_memory": used.replace("!", ""),
    }
    for node in topology(files).nodes:
        assert node.memory_bytes != 0
        assert node.bandwidth_gb_s != 0
