"""Every row against recorded hosts: one that has the fault, and one that looks like it and is healthy."""

import re
from typing import Any

import pytest

from tests.unit.detect.scenes import HOSTS, SHARED, full_diagnosis_of
from vllm_probe.core.device import Finding
from vllm_probe.core.rows import Row
from vllm_probe.detect import causes
from vllm_probe.detect.checks import ROWS
from vllm_probe.detect.doctor import CHECKS
from vllm_probe.vendors.cpu import checks as cpu_checks

ALL_ROWS: dict[str, Row] = {**ROWS, **cpu_checks._ROWS}
IDS = {row.id for row in ALL_ROWS.values()}
SAID = {row.id for row in causes.ROWS.values()}
"""Rows that a device's verdict or a log names."""
UNSEEN = {"LIB-01", "LIB-05", "MEM-07"}
"""Of these the ones that a shared scene has and no verdict or transcript in it tells."""
DANGEROUS = r"overdrive|ppfeaturemask|setenforce|setsebool|semanage|LD_PRELOAD|gpu-reset|drop_caches|rm -rf|kill -9"


def _texts(findings: tuple[Finding, ...]) -> str:
    return "\n".join(f"{fix.command}\n{fix.text}" for finding in findings for fix in finding.fix)


@pytest.mark.parametrize("name", HOSTS)
def test_a_recorded_host_gives_exactly_its_rows_with_the_commands_that_fix_them(name: str) -> None:
    expected = HOSTS[name]["expected"]
    diagnosis = full_diagnosis_of(HOSTS[name])
    assert {finding.id for finding in diagnosis.findings} == set(expected["diagnosis_ids"])
    assert [part for part in expected["fix_contains"] if part not in _texts(diagnosis.findings)] == []
    assert not set(expected["must_not"]) & set(expected["diagnosis_ids"])


@pytest.mark.parametrize("name", HOSTS)
def test_every_finding_has_evidence_a_cause_of_one_sentence_and_no_marker_left(name: str) -> None:
    for finding in full_diagnosis_of(HOSTS[name]).findings:
        assert finding.evidence, finding.id
        shown = "\n".join((finding.cause, _texts((finding,)), *(fix.effect for fix in finding.fix)))
        assert re.findall(r"<[a-z ]+>", shown.replace("<cpu mode='host-passthrough'/>", "")) == []
        assert finding.cause.endswith(".")
        assert finding.cause.count(". ") == 0


@pytest.mark.parametrize("row", sorted(IDS))
def test_each_row_has_a_host_that_shows_it_and_a_healthy_one_that_must_not(row: str) -> None:
    assert any(row in host["expected"]["diagnosis_ids"] for host in HOSTS.values())
    assert any(row in host["expected"]["must_not"] for host in HOSTS.values())


def test_the_checks_announce_exactly_the_rows_that_exist() -> None:
    log_only = {"CTR-06"}
    announced = {id_ for check in (*CHECKS, *cpu_checks.CHECKS) for id_ in check.ids}
    assert announced | log_only == IDS


@pytest.mark.parametrize(
    "row", [pytest.param(row, id=key) for rows in (ALL_ROWS, causes.ROWS) for key, row in sorted(rows.items())]
)
def test_a_row_is_well_formed_and_proposes_nothing_dangerous(row: Row) -> None:
    assert row.severity in {"blocks", "degrades", "latent", "info"}
    assert row.fix
    for where, command, text, effect in row.fix:
        assert where in {"shell", "host", "docker", "podman", "kubernetes", "lxc", "image", "windows", "bios"}
        assert text
        assert effect
        assert not re.search(DANGEROUS, f"{command} {text}")


@pytest.mark.skipif(not SHARED, reason="the shared scenes are not beside this checkout")
@pytest.mark.parametrize("scene", SHARED, ids=[scene["id"] for scene in SHARED])
def test_no_row_of_ours_is_reported_on_a_host_with_another_fault(scene: dict[str, Any]) -> None:
    expected = set(scene["expected"]["diagnosis_ids"])
    diagnosis = full_diagnosis_of(scene)
    assert {finding.id for finding in diagnosis.findings} == expected & (IDS | SAID) - UNSEEN
    if expected <= (IDS | SAID) - UNSEEN:
        assert [part for part in scene["expected"]["fix_contains"] if part not in _texts(diagnosis.findings)] == []
    usable = {device.id: (device.vendor, device.kind, device.arch, device.usable) for device in diagnosis.devices}
    for device in scene["expected"]["devices"]:
        if device["vendor"] == "cpu":
            assert usable[device["id"]] == ("cpu", device["kind"], device["arch"], device["usable"])
