"""A document in the place of another is told by its kind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.strategies import instances
from vllm_probe.core import codec
from vllm_probe.core.errors import InvalidJson, SchemaViolation
from vllm_probe.core.mistaken import Wanted, damaged, kind_of, misshapen
from vllm_probe.core.schema import DOCUMENTS


@given(st.data(), st.sampled_from(sorted(DOCUMENTS)))
def test_every_document_is_known_for_what_it_is(data: st.DataObject, name: str) -> None:
    assert kind_of(codec.to_json(data.draw(instances(DOCUMENTS[name])))) == name


@pytest.mark.parametrize("value", [{}, [], None, {"device_type": "cpu"}, {"schema_version": "1.0"}])
def test_what_is_none_of_ours_has_no_kind(value: object) -> None:
    assert kind_of(value) is None


def test_a_capability_document_for_a_config_names_the_command_that_takes_it() -> None:
    value = {"device_type": "cpu", "compute_units": {}, "memory": {}, "dma": {}}
    error = SchemaViolation("'engine' is missing", pointer="")
    found = misshapen(error, value, "runtime", "my card.json", "compare it")
    assert str(found) == "my card.json is a capability document, not a runtime config"
    assert "`vllm-probe negotiate --capability 'my card.json' --model MODEL` first" in found.hint


def test_a_document_of_the_kind_that_is_wanted_keeps_its_pointer_and_hint() -> None:
    error = misshapen(
        SchemaViolation("is no text", pointer="/engine"), {"engine": 5}, "runtime", "r.json", "compare it"
    )
    assert (str(error), error.hint) == ("r.json: /engine: is no text", "compare it")


@pytest.mark.parametrize(
    ("wanted", "command"), [("capability", "bench"), ("runtime", "negotiate"), ("scene", "doctor")]
)
def test_a_damaged_document_names_what_writes_it_again(wanted: Wanted, command: str) -> None:
    assert f"`vllm-probe {command}" in damaged(InvalidJson("x", hint=""), wanted).hint
