"""The reference documents that are shipped, and what is made of the same sources."""

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.negotiate.cases import EMBEDDING, GIB, config
from vllm_probe.core.codec import join
from vllm_probe.core.files import read_json
from vllm_probe.core.provenance import unfounded
from vllm_probe.core.resources import resource_dir
from vllm_probe.core.schema import unknown_keys, violations
from vllm_probe.negotiate.laws import device_row
from vllm_probe.vendors.descriptors import descriptor_name, load_capability

FOLDER = resource_dir("capabilities")
FILES = sorted(FOLDER.glob("*.capability.json"))
ROOT = Path(__file__).resolve().parents[2]
HEADER = {"schema_version", "created_at", "tool_version", "host_fingerprint", "device_type", "unknown", "measurements"}
CONFIGS = {
    "rtx-4090": ("bfloat16", "w8a8", 256),
    "h100-sxm-80gb": ("bfloat16", "none", 256),
    "l40s": ("bfloat16", "fp8", 256),
    "rtx-5060": ("bfloat16", "fp8", 256),
    "rtx-5090": ("bfloat16", "fp8", 256),
    "rx-7900-xtx": ("bfloat16", "none", 256),
    "arc-a770-16gb": ("bfloat16", "none", 64),
    "ascend-910b3": ("bfloat16", "ascend", 512),
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
    assert unknown_keys("capability", document) == ()
    assert unfounded(document) == ()
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
    assert rates["bf16"] in {rates["fp16"], None} or capability.device_type in {"cpu", "gaudi"}


@pytest.mark.parametrize(("name", "wanted"), CONFIGS.items())
def test_an_embedding_model_gets_a_sensible_config(name: str, wanted: tuple[str, str, int]) -> None:
    found = config(EMBEDDING, load_capability(FOLDER / f"{name}.capability.json"), engine="vllm")
    assert (found.dtype, found.quantization, found.alignment_bytes) == wanted
    assert found.budget.verdict == "boots"
    assert found.budget.requested_bytes
    assert found.budget.requested_bytes < 7 * GIB, "a pooling model does not fill the card"
    assert not any("suspect" in warning for warning in found.warnings)
    assert found.predicted.tokens_per_s.value


def test_the_devices_that_people_ask_for_are_there() -> None:
    names = {descriptor_name(path) for path in FILES}
    assert len(names) >= 25
    assert {"rtx-5060", "rtx-5070", "rtx-5090", "mi300x", "arc-b580", "ascend-910b2", "gaudi-3"} <= names


def test_no_two_documents_serve_the_same_device() -> None:
    seen: dict[str, list[int | None]] = {}
    for path in FILES:
        capability = load_capability(path)
        for name in {capability.device.name or "", *capability.device.also}:
            sizes = seen.setdefault(name, [])
            assert all(a and b and max(a, b) > 1.3 * min(a, b) for a in sizes for b in [capability.memory.total_bytes])
            sizes.append(capability.memory.total_bytes)


@pytest.mark.parametrize(
    ("name", "card"), [("mi250x-gcd", 128 * GIB), ("max-1550-stack", 128 * GIB), ("ascend-910c-die", 128 * GIB)]
)
def test_a_document_describes_what_torch_sees_as_one_device(name: str, card: int) -> None:
    assert load_capability(FOLDER / f"{name}.capability.json").memory.total_bytes == card // 2


def test_the_documents_and_their_page_are_those_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["write_capabilities.py", "--check"])
    assert runpy.run_path(str(ROOT / "tools" / "write_capabilities.py"))["main"]() == 0


def test_a_derived_rate_names_the_clock_that_it_holds_at() -> None:
    for path in FILES:
        for pointer, note in read_json(path)["measurements"].items():
            if pointer.endswith("throughput_gflops") and note["source"] == "derived":
                assert f"x {note['clock_mhz'] / 1000:g} GHz x" in note["reason"], (path, pointer)


def test_the_page_names_each_document() -> None:
    text = (ROOT / "docs" / "reference" / "descriptors.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE) == [descriptor_name(path) for path in FILES]


def test_a_band_is_of_a_value_that_the_descriptor_has() -> None:
    bands = read_json(ROOT / "vllm_probe" / "bench" / "bands.json")
    assert bands
    for name, entry in bands.items():
        known = dict(leaves(read_json(FOLDER / f"{name}.capability.json")))
        assert isinstance(entry["source"], str)
        for pointer, band in entry.items():
            if pointer != "source":
                assert pointer in known, (name, pointer)
                low, high = band
                assert 0 < low <= high < 1.5 * low, (name, pointer)


def test_what_the_descriptors_took_from_a_measurement_is_within_its_band() -> None:
    for name, entry in read_json(ROOT / "vllm_probe" / "bench" / "bands.json").items():
        document = read_json(FOLDER / f"{name}.capability.json")
        known = dict(leaves(document))
        for pointer, band in entry.items():
            if pointer != "source" and document["measurements"][pointer]["source"] == "measured" and known[pointer]:
                assert band[0] <= known[pointer] <= band[1], (name, pointer)
