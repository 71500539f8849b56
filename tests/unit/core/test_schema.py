"""The shipped schemas are the ones that the dataclasses define."""

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.strategies import instances
from vllm_probe.core import codec, schema
from vllm_probe.core.errors import UnknownName


@pytest.mark.parametrize("name", sorted(schema.DOCUMENTS))
def test_the_shipped_file_is_current_and_a_valid_schema(name: str) -> None:
    shipped = json.loads(schema.schema_text(name))
    jsonschema.Draft202012Validator.check_schema(shipped)
    assert shipped == schema.build_schema(name)


def test_every_property_of_a_document_is_described() -> None:
    undescribed = [
        f"{name}: {owner}.{key}"
        for name in schema.DOCUMENTS
        for owner, definition in {"": json.loads(schema.schema_text(name)), **_definitions(name)}.items()
        for key, value in definition["properties"].items()
        if "description" not in value
    ]
    assert undescribed == []


def _definitions(name: str) -> dict[str, dict[str, dict[str, object]]]:
    definitions: dict[str, dict[str, dict[str, object]]] = json.loads(schema.schema_text(name))["$defs"]
    return definitions


def test_an_unknown_schema_is_refused_with_the_names() -> None:
    with pytest.raises(UnknownName, match="capabilities") as caught:
        schema.schema_text("capabilities")
    assert "inventory" in caught.value.hint


def test_unknown_keys_are_named_with_their_pointer_and_the_nearest_known_key() -> None:
    document = {
        "device_type": "x",
        "compute_units": {"fp99": {}, "fp32": {"thruput": 1, "curve": [[1, 2]]}},
        "memory": {"bandwith_gb_s": 1, "total_bytes": None},
        "dma": {"zzz/~": 1},
        "cache": {"l9": 1},
        "measurements": {"/cache/l9": {"source": "measured", "status": "measured", "spread": 1}},
    }
    found = {each.pointer: each.message.partition("; ")[2] for each in schema.unknown_keys("capability", document)}
    assert found.pop("/dma/zzz~1~0").startswith("known are engine_count, max_concurrent_transfers, ")
    assert found.pop("/compute_units/fp99") in {"did you mean fp32?", "did you mean fp16?"}
    assert found == {
        "/compute_units/fp32/thruput": "did you mean throughput_gflops?",
        "/memory/bandwith_gb_s": "did you mean bandwidth_gb_s?",
        "/measurements/~1cache~1l9/spread": "did you mean spread_pct?",
    }


@given(st.data(), st.sampled_from(sorted(schema.DOCUMENTS)))
def test_what_we_write_has_no_unknown_key(data: st.DataObject, name: str) -> None:
    document = codec.to_json(data.draw(instances(schema.DOCUMENTS[name])))
    by_word = ("/compute_units/", "/weight_only/")
    assert [each for each in schema.unknown_keys(name, document) if not each.pointer.startswith(by_word)] == []
