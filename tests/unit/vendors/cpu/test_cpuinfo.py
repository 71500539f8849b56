from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.host.stats import parse_cpu_list
from vllm_probe.vendors.cpu.cpuinfo import (
    best_isa,
    format_cpu_list,
    isa_words,
    parse_cpuinfo,
    parse_khz,
    parse_size_kib,
)

ZEN = """processor\t: 0
model name\t: AMD EPYC 9754
cpu MHz\t\t: 3100.123
physical id\t: 0
core id\t\t: 5
flags\t\t: fpu sse4_2 avx avx2 fma avx512f avx512_vnni avx512_bf16 hypervisor

processor\t: 1
model name\t: AMD EPYC 9754
physical id\t: 0
core id\t\t: 5
flags\t\t: fpu sse4_2 avx avx2 fma avx512f avx512_vnni hypervisor
"""
GRAVITON = """processor\t: 0
Features\t: fp asimd asimdhp i8mm bf16 sve
CPU implementer\t: 0x41
CPU part\t: 0xd40

Hardware\t: something
"""
lines = st.lists(
    st.tuples(
        st.sampled_from(["processor", "flags", "Features", "cpu MHz", "core id", "physical id", "model name", ""]),
        st.sampled_from([": ", "", ":", "\t:"]),
        st.one_of(st.text(max_size=20), st.integers().map(str), st.just("9" * 5000)),
    ).map("".join)
).map("\n".join)


def test_a_processor_is_described_by_what_all_of_its_threads_share() -> None:
    info = parse_cpuinfo(ZEN)
    assert info.model == "AMD EPYC 9754"
    assert info.processors == (0, 1)
    assert info.cores == {0: ("0", "5"), 1: ("0", "5")}
    assert info.mhz == 3100.123
    assert "avx512_vnni" in info.flags
    assert "avx512_bf16" not in info.flags, "only one of the two processors has it"


def test_an_arm_core_is_named_by_its_part_number() -> None:
    info = parse_cpuinfo(GRAVITON)
    assert info.model == "Arm Neoverse-V1"
    assert isa_words(info.flags, "aarch64") == ("neon", "sve", "asimdhp", "i8mm", "bf16")
    assert best_isa(isa_words(info.flags, "aarch64")) == "sve"


def test_the_architecture_is_the_best_instruction_set_of_the_ladder() -> None:
    ladder = {
        "sse4_2": "sse4_2",
        "avx": "sse4_2 avx",
        "avx2": "sse4_2 avx avx2 avx_vnni",
        "avx512": "sse4_2 avx avx2 avx512f",
        "avx512_vnni": "avx2 avx512f avx512_vnni",
        "avx512_bf16": "avx2 avx512f avx512_vnni avx512_bf16",
        "amx": "avx2 avx512f avx512_vnni avx512_bf16 amx_tile amx_bf16",
        "sme": "asimd sve sve2 sme",
    }
    assert {word: best_isa(isa_words(frozenset(flags.split()), "x")) for word, flags in ladder.items()} == {
        word: word for word in ladder
    }
    assert best_isa(isa_words(frozenset(), "x86_64")) is None
    assert best_isa(isa_words(frozenset(), "aarch64")) == "neon"


def test_a_cache_size_or_a_clock_of_zero_is_unknown() -> None:
    assert parse_size_kib("32768K\n") == 32 << 20
    assert parse_size_kib("0K") is None
    assert parse_size_kib("32M") is None
    assert parse_size_kib(None) is None
    assert parse_khz("3400000\n") == 3400.0
    assert parse_khz("0") is None
    assert parse_khz("fast") is None


@given(lines)
def test_any_text_gives_an_answer(text: str) -> None:
    info = parse_cpuinfo(text)
    assert all(processor >= 0 for processor in info.processors)
    assert info.mhz is None or info.mhz > 0
    isa_words(info.flags, "x86_64")


@given(st.text())
def test_any_text_is_a_size_or_none(text: str) -> None:
    assert parse_size_kib(text) is None or parse_size_kib(text.strip()) == parse_size_kib(text)
    assert parse_khz(text) is None or parse_khz(text) != 0


@given(st.sets(st.integers(0, 300)))
def test_a_cpu_list_reads_back(numbers: set[int]) -> None:
    assert parse_cpu_list(format_cpu_list(numbers)) == tuple(sorted(numbers))
