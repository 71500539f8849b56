from vllm_probe.core.device import Device, DeviceMemory
from vllm_probe.vendors.evidence import Evidence, combine

CARD = Device(id="0000:03:00.0", vendor="acme", kind="gpu", name="by its id", sources={"/name": "id table"})
READING = (CARD, {"/arch": "the id does not tell it", "/memory/used_bytes": "no library was asked"})


def says(source: str, **facts: object) -> Evidence:
    return Evidence(
        id=CARD.id, source=source, facts={f"/{key.replace('__', '/')}": value for key, value in facts.items()}
    )


def test_the_best_source_gives_each_value_and_is_named() -> None:
    library = says("library", name="Card 9", memory__reported_bytes=8 << 30)
    tool = says("tool", name="Card 9", arch="a1", memory__kind="dedicated")
    device, unknown = combine(READING, [library, tool])
    assert (device.name, device.arch) == ("Card 9", "a1")
    assert device.memory == DeviceMemory(reported_bytes=8 << 30, kind="dedicated")
    assert device.sources == {
        "/name": "library",
        "/arch": "tool",
        "/memory/reported_bytes": "library",
        "/memory/kind": "tool",
    }
    assert unknown == {"/memory/used_bytes": "no library was asked"}
    assert "conflicts" not in device.details


def test_sources_that_disagree_are_both_shown() -> None:
    evidence = [says("library", memory__reported_bytes=1000), says("tool", memory__reported_bytes=2000)]
    device, _ = combine(READING, evidence)
    assert device.memory.reported_bytes == 1000
    assert device.details["conflicts"] == {"/memory/reported_bytes": [{"value": 2000, "source": "tool"}]}


def test_a_rounded_number_is_no_disagreement() -> None:
    evidence = [says("library", memory__used_bytes=1000), says("tool", memory__used_bytes=1010)]
    assert "conflicts" not in combine(READING, evidence)[0].details


def test_evidence_of_another_device_is_left_alone() -> None:
    other = Evidence(id="0000:04:00.0", source="library", facts={"/name": "Other"})
    assert combine(READING, [other]) == READING


def test_the_reason_of_the_best_source_stays_where_no_source_has_a_value() -> None:
    library = Evidence(
        id=CARD.id, source="library", unknown={"/memory/used_bytes": "NOT_SUPPORTED", "/arch": "no call"}
    )
    tool = Evidence(id=CARD.id, source="tool", facts={"/arch": "a1"}, unknown={"/memory/used_bytes": "[N/A]"})
    assert combine(READING, [library, tool])[1] == {"/memory/used_bytes": "NOT_SUPPORTED"}


def test_what_the_reading_knows_needs_no_reason() -> None:
    known, _ = combine(READING, [says("bus", arch="a1")])
    library = Evidence(id=CARD.id, source="library", unknown={"/arch": "no call", "/details/load": "no call"})
    assert "/arch" not in combine((known, {}), [library])[1]
    assert combine((known, {}), [library])[1] == {"/details/load": "no call"}
