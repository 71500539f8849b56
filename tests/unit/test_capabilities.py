"""The reference documents that are shipped."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.negotiate.cases import EMBEDDING, GIB, config
from vllm_probe.core.codec import join
from vllm_probe.core.files import read_json
from vllm_probe.core.resources import resource_dir
from vllm_probe.core.schema import violations
from vllm_probe.negotiate.laws import device_row
from vllm_probe.vendors.descriptors import descriptor_name, load_capability

FOLDER = resource_dir("capabilities")
FILES = sorted(FOLDER.glob("*.capability.json"))
HEADER = {"schema_version", "created_at", "tool_version", "host_fingerprint", "device_type", "unknown", "measurements"}
CONFIGS = {
    "rtx-4090": ("bfloat16", "w8a8", 256),
    "h100-sxm-80gb": ("bfloat16", "none", 256),
    "rx-7900-xtx": ("bfloat16", "none", 256),
    "arc-a770-16gb": ("bfloat16", "none", 64),
    "ascend-910b3": ("bfloat16", "none", 512),
}

every_file = pytest.mark.parametrize("path", FILES, ids=descriptor_name)


def leaves(value: Any, pointer: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, join(pointer, key))
    else:
        yield pointer, value


@every_file
def test_a_document_keeps_the_schema_and_is_written_as_we_write(path: Path) -> None:
    document = read_json(path)
    assert violations("capability", document) == ()
    assert document["schema_version"].startswith("2.")
    assert all(document["device"][key] for key in ("vendor", "kind", "name", "arch"))


@every_file
def test_every_value_has_a_source_and_every_gap_a_reason(path: Path) -> None:
    document = read_json(path)
    about, unknown = document["measurements"], document["unknown"]
    values = {key: value for key, value in document.items() if key not in HEADER}
    for pointer, value in leaves(values):
        note = about.get(pointer) or about[pointer.rpartition("/")[0]]  # a choice is described as a whole
        if value in (None, [], {}):
            assert unknown[pointer], pointer
            assert note["reason"] == unknown[pointer]
            assert note["status"] in {"skipped", "unsupported", "error"}
        else:
            assert pointer not in unknown
            assert note["status"] in {"measured", "noisy", "throttled"}, pointer
            assert note["reason"] or note["source"] in {"measured", "queried"}, pointer
    assert {key for key in HEADER if document[key] is None} == {each[1:] for each in unknown if each[1:] in HEADER}


@every_file
def test_rates_are_dense_and_in_the_right_unit(path: Path) -> None:
    capability = load_capability(path)
    plausible = device_row(capability.device_type)[1]["plausible"]
    rates = {word: unit.throughput_gflops for word, unit in capability.compute_units.items()}
    for word, value in {**rates, "bandwidth": capability.memory.bandwidth_gb_s}.items():
        low, high = plausible.get(word, (0, float("inf")))
        assert value is None or low <= value <= high, word
    assert rates["bf16"] == rates["fp16"] or capability.device_type == "cpu"


@pytest.mark.parametrize(("name", "wanted"), CONFIGS.items())
def test_an_embedding_model_gets_a_sensible_config(name: str, wanted: tuple[str, str, int]) -> None:
    found = config(EMBEDDING, load_capability(FOLDER / f"{name}.capability.json"), engine="vllm")
    assert (found.dtype, found.quantization, found.alignment_bytes) == wanted
    assert found.budget.verdict == "boots"
    assert found.budget.requested_bytes
    assert found.budget.requested_bytes < 7 * GIB, "a pooling model does not fill the card"
    assert not any("suspect" in warning for warning in found.warnings)
    assert found.predicted.tokens_per_s.value


def test_the_table_of_the_readme_names_each_document() -> None:
    named = re.findall(r"^\| `([^`]+)` \|", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert named == [descriptor_name(path) for path in FILES]
