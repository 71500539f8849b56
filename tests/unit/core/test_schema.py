"""The shipped schemas are the ones that the dataclasses define."""

import json

import jsonschema
import pytest

from vllm_probe.core import schema
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
