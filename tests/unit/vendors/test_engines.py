"""Which architectures the releases of vLLM run on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.vendors.engines import compiles, refusal


@pytest.mark.parametrize(
    ("vendor", "arch", "version", "said"),
    [
        ("nvidia", "sm_61", "0.11.2", "runs on sm_70 and newer, this is sm_61: no release does"),
        ("nvidia", "sm_61", None, "runs on sm_75 and newer, this is sm_61: no release does"),
        ("nvidia", "sm_70", "0.31.0", "runs on sm_75 and newer, this is sm_70: 0.14 is the last release that does"),
        ("nvidia", "sm_70", None, "runs on sm_75 and newer, this is sm_70: 0.14 is the last release that does"),
        ("amd", "gfx1030", "0.11.2+rocm641", "this is gfx1030: no release is built for it"),
        ("ascend", "310b4", "0.13.0", "this is 310b4: no release of vllm-ascend does"),
    ],
)
def test_a_release_that_does_not_run_on_an_architecture_says_which_does(
    vendor: str, arch: str, version: str | None, said: str
) -> None:
    assert said in (refusal("vllm", vendor, arch, version) or "")


@pytest.mark.parametrize(
    ("vendor", "arch", "version"),
    [
        ("nvidia", "sm_70", "0.14.1"),
        ("nvidia", "sm_75", None),
        ("nvidia", "sm_121a", None),
        ("nvidia", None, None),
        ("amd", "gfx942:sramecc+", "0.17.1.dev3+g1a2b3c4"),
        ("ascend", "Ascend910B3", None),
        ("intel", "dg2", None),
        ("nvidia", "sm_61", "main"),
        ("nvidia", "sm_61", "1.²"),
    ],
)
def test_what_runs_and_what_is_not_known_is_not_refused(vendor: str, arch: str | None, version: str | None) -> None:
    assert refusal("vllm", vendor, arch, version) is None


def test_an_engine_without_a_table_refuses_nothing() -> None:
    assert refusal("bundled", "nvidia", "sm_30") is None


def test_what_its_sources_compile_for_is_told_from_what_nothing_does() -> None:
    assert compiles("vllm", "amd", "gfx1030")
    assert not compiles("vllm", "amd", "gfx803")
    assert not compiles("vllm", "nvidia", "sm_61")


@given(st.text(max_size=20), st.none() | st.text(max_size=20))
def test_any_architecture_and_version_is_answered(arch: str, version: str | None) -> None:
    assert isinstance(refusal("vllm", "nvidia", arch, version), str | None)
