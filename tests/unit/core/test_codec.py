"""The codec round-trips, agrees with the schemas and points at what is wrong."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.core.strategies import damaged, instances
from vllm_probe.core import codec, schema
from vllm_probe.core.capability import Capability
from vllm_probe.core.device import Device
from vllm_probe.core.errors import SchemaViolation


@pytest.mark.parametrize("name", sorted(schema.DOCUMENTS))
def test_every_document_survives_a_round_trip_and_satisfies_its_schema(name: str) -> None:
    cls = schema.DOCUMENTS[name]

    @settings(suppress_health_check=list(HealthCheck))
    @given(instances(cls))
    def check(document: Any) -> None:
        value = json.loads(codec.dumps(document))
        assert codec.from_json(cls, value) == document
        assert schema.violations(name, value) == ()

    check()


@pytest.mark.parametrize("name", sorted(schema.DOCUMENTS))
def test_codec_and_schema_refuse_the_same_damaged_documents(name: str) -> None:
    cls = schema.DOCUMENTS[name]

    @settings(suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        value = data.draw(damaged(codec.to_json(data.draw(instances(cls)))))
        pointers: set[str | None] = {found.pointer for found in schema.violations(name, value)}
        assert _refused_at(cls, value) in (pointers or {None})

    check()


def _refused_at(cls: type, value: Any) -> str | None:
    try:
        codec.from_json(cls, value)
    except SchemaViolation as error:
        return error.pointer
    return None


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"memory": {"bandwidth_gb_s": -1}}, "/memory/bandwidth_gb_s"),
        ({"compute_units": {"a/b~c": {"max_threads": "many"}}}, "/compute_units/a~1b~0c/max_threads"),
        ({"compute_units": {"bf16": {"curve": [[32, 1.0], [64]]}}}, "/compute_units/bf16/curve/1"),
        ({"memory": {"managed_memory_supported": 1}}, "/memory/managed_memory_supported"),
        ({"dma": None}, "/dma"),
    ],
)
def test_a_violation_names_the_pointer(change: dict[str, Any], pointer: str) -> None:
    valid = {"device_type": "x", "compute_units": {}, "memory": {}, "dma": {}}
    with pytest.raises(SchemaViolation) as caught:
        codec.from_json(Capability, valid | change)
    assert caught.value.pointer == pointer


def test_a_missing_key_is_named_at_its_object() -> None:
    with pytest.raises(SchemaViolation, match="'dma' is missing"):
        codec.from_json(Capability, {"device_type": "x", "compute_units": {}, "memory": {}})


def test_keys_of_a_later_minor_version_are_left_out() -> None:
    device = codec.from_json(Device, {"id": "cpu0", "vendor": "cpu", "kind": "cpu", "shoe_size": 43})
    assert device == Device(id="cpu0", vendor="cpu", kind="cpu")


def test_text_is_sorted_and_floats_are_stable() -> None:
    @dataclass(frozen=True)
    class Pair:
        b: float
        a: float

    assert codec.dumps(Pair(b=0.1 + 0.2, a=2.0)) == '{\n  "a": 2,\n  "b": 0.3\n}\n'


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_document_never_holds_a_number_that_is_not_finite(value: float) -> None:
    with pytest.raises(ValueError, match="cannot stand"):
        codec.dumps({"rate": value})


def test_nesting_is_bounded() -> None:
    value: Any = 1
    for _ in range(200):
        value = [value]
    with pytest.raises(SchemaViolation, match="deeply"):
        codec.from_json(Device, {"id": "a", "vendor": "b", "kind": "cpu", "details": {"x": value}})
