"""Numbers in HIP under the environment's masks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.detect.scenes import host_of
from vllm_probe.vendors.amd.masks import Card, apply, read_masks

A, B, C = Card("a", "GPU-00000000DEADBEEF"), Card("b", "GPU-00000000CAFE0001"), Card("c", "GPU-00000000CAFE0002")


def numbered(**env: str) -> tuple[dict[str, int], dict[str, str]]:
    numbers, hidden = apply((A, B, C), read_masks(host_of(env=env)))
    return numbers, {id_: mask.name for id_, mask in hidden.items()}


def test_without_a_mask_the_order_is_kfds() -> None:
    assert numbered() == ({"a": 0, "b": 1, "c": 2}, {})


@pytest.mark.parametrize("name", ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"])
@pytest.mark.parametrize(
    ("value", "numbers"),
    [
        ("2,0", {"c": 0, "a": 1}),
        (" 1 ", {"b": 0}),
        ("GPU-00000000DEADBEEF,2", {"a": 0, "c": 1}),
        ("GPU-00000000CAFE", {}),  # the beginning of two
        ("0,7,1", {"a": 0}),  # what follows an entry that names none is ignored
        ("0,-1,1", {"a": 0}),
        ("-1", {}),
        ("", {}),
        ("x", {}),
    ],
)
def test_each_mask_picks_and_orders(name: str, value: str, numbers: dict[str, int]) -> None:
    assert numbered(**{name: value}) == (numbers, dict.fromkeys({"a", "b", "c"} - set(numbers), name))


def test_the_second_mask_counts_what_the_first_leaves() -> None:
    numbers, hidden = numbered(ROCR_VISIBLE_DEVICES="1,2", HIP_VISIBLE_DEVICES="1")
    assert numbers == {"c": 0}
    assert hidden == {"a": "ROCR_VISIBLE_DEVICES", "b": "HIP_VISIBLE_DEVICES"}


def test_two_masks_of_the_same_number_leave_nothing() -> None:
    assert numbered(ROCR_VISIBLE_DEVICES="1", CUDA_VISIBLE_DEVICES="1")[0] == {}


def test_cuda_counts_only_where_hip_is_not_set() -> None:
    assert numbered(HIP_VISIBLE_DEVICES="1", CUDA_VISIBLE_DEVICES="0")[0] == {"b": 0}


def test_what_opencl_alone_reads_hides_nothing() -> None:
    assert numbered(GPU_DEVICE_ORDINAL="1") == numbered()


def test_a_repeated_entry_ends_the_list_of_rocr_and_is_skipped_by_hip() -> None:
    assert numbered(ROCR_VISIBLE_DEVICES="0,0,1")[0] == {"a": 0}
    assert numbered(HIP_VISIBLE_DEVICES="0,0,1")[0] == {"a": 0, "b": 1}


@given(st.text(alphabet="0123-,GPUa ") | st.text(), st.text(alphabet="012,-"))
def test_any_mask_numbers_what_it_leaves_and_names_what_it_hides(first: str, second: str) -> None:
    numbers, hidden = numbered(ROCR_VISIBLE_DEVICES=first, HIP_VISIBLE_DEVICES=second)
    assert sorted([*numbers, *hidden]) == ["a", "b", "c"]
    assert sorted(numbers.values()) == list(range(len(numbers)))
