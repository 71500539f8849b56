"""What `capability` says of descriptors to a person, and keeps out of the way."""

import json
import re
from pathlib import Path

from tests.cli.conftest import Cli
from vllm_probe.core.files import read_json
from vllm_probe.core.resources import resource_dir


def test_the_headline_bandwidth_is_shown_unless_it_repeats_an_access(cli: Cli) -> None:
    shown = cli("capability", "show", "arc-a770-16gb").out
    assert re.search(r"^read +421 ", shown, re.MULTILINE)
    assert re.search(r"^bandwidth +560 ", shown, re.MULTILINE)
    assert not re.search(r"^bandwidth ", cli("capability", "show", "null.json").out, re.MULTILINE)


def test_addresses_are_shortened_for_a_person_and_whole_in_the_document(cli: Cli) -> None:
    shown = cli("capability", "show", "arc-a770-16gb", width=200).out
    assert "svethardware.cz/..." in shown
    assert "svethardware.cz/i" not in shown
    assert shown.endswith("addresses in full: --json\n")
    assert "svethardware.cz/i" in cli("capability", "show", "arc-a770-16gb", "--json").out
    assert "addresses in full" not in cli("capability", "show", "ascend.json").out


def test_of_transfers_no_more_is_said_than_is_known(cli: Cli) -> None:
    assert re.search(r"transfers +2 copy engines$", cli("capability", "show", "rtx-4090").out, re.MULTILINE)
    document = read_json(Path("ascend.json")) | {"dma": {"engine_count": 1, "max_concurrent_transfers": 3}}
    Path("one.json").write_text(json.dumps(document))
    assert "1 copy engine, 3 worth overlapping\n" in cli("capability", "show", "one.json").out


def test_descriptors_for_other_device_types_are_counted_by_place(cli: Cli) -> None:
    found = cli("capability", "path", width=200).out
    assert "is for device type" not in found
    assert re.search(r"bundled .*for other device types: \d+ amd, .*\d+ nvidia", found)
    assert found.count("bundled") < 6
    assert "`vllm-probe capability list` shows those" in found


def test_a_name_is_validated_as_it_is_shown(cli: Cli) -> None:
    ended = cli("capability", "validate", "rtx-4090")
    assert ended.code == 0
    assert "rtx-4090.capability.json is valid: version 2.0" in ended.out
    ended = cli("capability", "validate", "rtx-409")
    assert (ended.code, ended.error) == (2, "unknown-name")
    assert "rtx-4090" in ended.err


def test_a_document_that_contradicts_itself_is_not_valid_and_is_read_all_the_same(cli: Cli) -> None:
    document = read_json(resource_dir("capabilities") / "rtx-4090.capability.json")
    document["measurements"]["/memory/bandwidth"] = document["measurements"]["/memory/read_gb_s"]
    Path("rtx.json").write_text(json.dumps(document))
    ended = cli("capability", "validate", "rtx.json")
    assert (ended.code, ended.error) == (1, "not-valid")
    assert ended.out == "/memory/bandwidth: `measurements` describes this value, and there is none\n"
    assert "1 violation" in ended.err
    assert cli("negotiate", "Qwen3-Embedding-0.6B", "--capability", "rtx.json").code == 0


def test_a_document_of_version_2_without_measurements_is_valid_and_warned_of(cli: Cli) -> None:
    document = {"schema_version": "2.0", "device_type": "acme", "compute_units": {}, "memory": {}, "dma": {}}
    Path("bare.json").write_text(json.dumps(document))
    ended = cli("capability", "validate", "bare.json")
    assert ended.code == 0
    assert "warning: /measurements: absent" in ended.err
    del document["schema_version"]
    Path("bare.json").write_text(json.dumps(document))
    assert cli("capability", "validate", "bare.json").err == ""


def test_a_runtime_config_given_to_validate_is_called_one(cli: Cli) -> None:
    negotiate = ("negotiate", "--model", "Qwen3-Embedding-0.6B", "--capability", "cpu.json")
    assert cli(*negotiate).code == 0
    ended = cli("capability", "validate", "runtime.json")
    assert (ended.code, ended.error) == (1, "not-valid")
    assert "it is a runtime document" in ended.err


def test_a_name_that_is_none_is_answered_with_those_that_begin_with_it_or_with_the_list(cli: Cli) -> None:
    shown = cli("capability", "show", "H100")
    assert (shown.code, shown.error) == (2, "unknown-name")
    assert "did you mean h100-sxm-80gb? `vllm-probe capability list` shows all" in shown.err
    nothing = cli("negotiate", "Qwen3-8B", "--capability", "nothere")
    assert "one of those that `vllm-probe capability list` shows" in nothing.err
