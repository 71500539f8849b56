"""The record as a text tree."""

from syrupy.assertion import SnapshotAssertion

from tests.unit.negotiate.cases import ASCEND, CPU, EMBEDDING, GIB, GLM_5_3, MINILM, RTX, config
from vllm_probe.negotiate.explain import explain
from vllm_probe.negotiate.laws import table


def test_the_reference_machine_is_explained(snapshot: SnapshotAssertion) -> None:
    assert explain(config(MINILM, CPU, capability_name="reference")) == snapshot


def test_a_version_1_document_is_explained(snapshot: SnapshotAssertion) -> None:
    assert explain(config(EMBEDDING, ASCEND, engine="vllm", capability_name="ascend.json")) == snapshot


def test_a_model_that_does_not_fit_is_explained(snapshot: SnapshotAssertion) -> None:
    text = explain(config(GLM_5_3, RTX, engine="vllm", device_memory_bytes=24 * GIB))
    assert text[text.index("├─ budget") :] == snapshot


def test_every_parameter_has_a_branch_with_its_rule_and_its_carrier() -> None:
    lines = explain(config(MINILM, CPU)).splitlines()
    for key in table("parameters"):
        (index,) = [number for number, line in enumerate(lines) if line.startswith(f"├─ {key} = ")]
        assert lines[index + 1].startswith("│  ├─ because ")
    assert sum(
        line.startswith(("│  └─ passed on", "│  └─ not passed on to", "│  └─ read from")) for line in lines
    ) == len(table("parameters"))


def test_a_pinned_value_is_marked() -> None:
    assert "├─ dtype = float32 (pinned)" in explain(config(MINILM, CPU, pins={"dtype": "float32"}))
