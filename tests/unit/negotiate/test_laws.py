"""The data files: complete, sourced, and found by name and version."""

import ast
import inspect
import itertools
from pathlib import Path

import pytest

from vllm_probe.core.config import RuntimeConfig
from vllm_probe.core.errors import BadUsage
from vllm_probe.core.releases import is_before
from vllm_probe.models import catalogue
from vllm_probe.negotiate.laws import band, by_device, card_of, device_row, server_defaults, table

FOLDER = Path(inspect.getfile(band)).parent
FILES = sorted(path.stem for path in FOLDER.glob("*.json"))


@pytest.mark.parametrize("name", FILES)
def test_a_data_file_is_an_object(name: str) -> None:
    assert table(name)
    assert table(name) is table(name)


def test_every_row_that_states_a_fact_has_a_source() -> None:
    sourced = [
        *table("devices").values(),
        *table("methods").values(),
        *table("support").values(),
        *(each for engine in ("vllm", "bundled") for each in table(engine)["bands"]),
        *(each for engine in ("vllm", "bundled") for each in table("speed")[engine].values()),
    ]
    assert len(sourced) > 20
    assert all(len(row["source"]) > 10 for row in sourced)


def test_every_method_of_the_support_table_is_described() -> None:
    for engine in table("support").values():
        assert {name for rows in engine["methods"].values() for name in rows} <= set(table("methods"))


def test_every_parameter_is_a_field_of_the_runtime_config() -> None:
    assert set(table("parameters")) <= set(RuntimeConfig.__dataclass_fields__)
    honoured = {key for key, row in table("parameters").items() if row["bundled"]}
    assert honoured == {
        "dtype", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "prefill_chunk_size", "threads",
        "primitives", "pooling", "group_width", "compile",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("word", "name"), [("npu", "ascend"), ("CUDA", "nvidia"), ("xpu", "intel_xpu"), ("cpu", "cpu"), ("mystery", "*")]
)
def test_a_device_type_is_found_by_any_of_its_names(word: str, name: str) -> None:
    assert device_row(word)[0] == name
    assert device_row(word)[1] is table("devices")[name]


def test_ranges_are_ordered_and_contain_the_datasheet_of_the_4060_laptop() -> None:
    ranges = [limits for row in table("devices").values() for limits in row["plausible"].values()]
    assert all(0 < low <= high for low, high in ranges)
    low, high = table("devices")["nvidia"]["plausible"]["fp16"]
    assert low <= 29000 <= high


@pytest.mark.parametrize(
    ("version", "first"),
    [("0.11.2", "0.8"), ("0.6.4", "0.6"), ("v0.19.0", "0.17"), ("0.28", "0.17"), ("0.29.0", "0.29"), (None, "0.29")],
)
def test_the_law_of_a_version_is_that_of_its_band(version: str | None, first: str) -> None:
    wanted, law, warning = band("vllm", version)
    assert law["from"] == first
    assert wanted == (version or "0.33")
    assert warning is None


def test_a_law_outside_its_range_is_used_and_said() -> None:
    _, law, warning = band("vllm", "0.34.0")
    assert law["to"] == "0.33"
    assert warning == "the memory law of vllm 0.29 to 0.33 is used outside its range, for 0.34.0"


@pytest.mark.parametrize("version", ["latest", "0.x", "."])
def test_a_version_that_is_none_is_bad_usage(version: str) -> None:
    with pytest.raises(BadUsage, match="not an engine version"):
        band("vllm", version)


def test_a_row_without_an_entry_is_that_of_every_other_device() -> None:
    assert by_device({"cpu": {"a": 1}, "*": {"b": 2}}, "nvidia") == {"b": 2}
    assert by_device({"cpu": {"a": 1}}, "nvidia") == {}


def test_bands_follow_each_other_without_a_gap() -> None:
    bands = table("vllm")["bands"]
    numbers = [tuple(map(int, (row["from"] + "." + row["to"]).split("."))) for row in bands]
    assert all(before[3] + 1 == after[1] for before, after in itertools.pairwise(numbers))


@pytest.mark.parametrize("path", sorted(FOLDER.parent.glob("*.py")), ids=lambda path: path.stem)
def test_no_rule_of_a_device_type_stands_in_code(path: Path) -> None:
    names = {name for key, row in table("devices").items() for name in (key, *row["also"])} - {"*"}
    literals = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
    assert not names & literals


@pytest.mark.parametrize("name", table("devices"))
def test_the_block_size_of_a_device_type_is_one_that_it_takes(name: str) -> None:
    row = table("devices")[name]
    assert row["block_size"] in row["block_sizes"] == sorted(row["block_sizes"])
    sizes = [size for rule in table("blocks")["rows"] if name in rule["types"] for _, size in rule["size"]]
    assert set(sizes) <= set(row["block_sizes"])


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("NVIDIA H100 SXM 80GB", 79.19), ("H100-80GB", 79.19), ("A100-40GB", 39.5), ("NVIDIA A100 SXM 80GB", 79.15),
        ("NVIDIA GeForce RTX 4090", 23.64), ("NVIDIA A10", 22.06), ("Ascend 910B 64GB", 61.27), ("GH200-96GB", 94.5),
    ],
)  # fmt: skip
def test_a_card_has_what_an_engine_sees_of_it(name: str, gib: float) -> None:
    card = card_of(name)
    assert card is not None
    assert card["gib"] == gib


@pytest.mark.parametrize("name", ["", "Radeon RX 7600", "NVIDIA GeForce RTX 3060", "A1000", "Huawei Ascend 310"])
def test_a_card_that_is_not_listed_has_no_row(name: str) -> None:
    assert card_of(name) is None


@pytest.mark.parametrize(
    ("version", "gib", "arch", "tokens", "seqs"),
    [
        ("0.19.0", 79.19, "sm_90", 8192, 1024), ("0.19.0", 79.15, "sm_80", 2048, 256),
        ("0.33", 191.98, "gfx942", 16384, 1024),
        ("0.28", 191.98, "gfx942", 8192, 1024),
        ("0.33", 23.64, "sm_89", 2048, 256), ("0.8.4", 44.4, "sm_89", 2048, 1024),
        ("0.8.5", 79.15, "sm_80", 8192, 1024), ("0.8.5", 44.4, "sm_89", 2048, 256),
        ("0.30", 119.6, "sm_121", 2048, 256),
    ],
)  # fmt: skip
def test_the_servers_batch_is_the_default_of_version_and_card(
    version: str, gib: float, arch: str, tokens: int, seqs: int
) -> None:
    found = server_defaults(version, round(gib * (1 << 30)), arch)
    assert found == {"max_num_batched_tokens": tokens, "max_num_seqs": seqs}


@pytest.mark.parametrize(
    ("version", "value"),
    [("0.20", "blocks"), ("0.20.1", "blocks"), ("0.20.2rc1", "concurrency"), ("0.20.2", "concurrency"),
     ("1.0", "concurrency")],
)  # fmt: skip
def test_a_step_holds_to_the_patch_release(version: str, value: str) -> None:
    assert band("vllm", version)[1]["tokens_logged"] == value


def test_the_default_share_is_that_of_the_version() -> None:
    assert [band("vllm", version)[1]["utilization"] for version in ("0.11", "0.19.0", "0.20.0", "0.33")] == [
        0.9, 0.9, 0.92, 0.92,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "other", "before"),
    [("0.10.0", "0.10.1", True), ("0.10", "0.10.1", False), ("0.10.1", "0.10.1", False), ("0.9.2", "0.10.0", True),
     ("0.10.1+gptoss", "0.10.1", False), ("0.33", "0.19.0", False)],
)  # fmt: skip
def test_a_release_is_before_another_by_the_numbers_that_it_names(version: str, other: str, before: bool) -> None:
    assert is_before(version, other) is before


def test_every_architecture_of_the_catalogue_is_dated_or_was_always_there() -> None:
    always = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"}
    known = {catalogue.load(name).architecture for name in catalogue.entries()}
    known = {name.replace("ForSequenceClassification", "ForCausalLM") for name in known}
    assert known <= always | set(table("vllm")["first_releases"])
