import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from vllm_probe.core.rows import FixText, Row, load_rows, matching_line

_ROW = Row(
    "CPU-04",
    "degrades",
    cause="only <quota> processors may be used",
    fix=(("shell", "export OMP_NUM_THREADS=<threads>", "start <threads> threads", "none"), ("bios", None, "a", "b")),
)


def test_a_row_fills_its_markers_and_leaves_out_null_evidence() -> None:
    finding = _ROW.finding("cpu0", ("cpu.max: 4", None), quota=4, threads=3)
    assert finding.cause == "only 4 processors may be used"
    assert [fix.command for fix in finding.fix] == ["export OMP_NUM_THREADS=3", None]
    assert finding.fix[0].text == "start 3 threads"
    assert finding.evidence == ("cpu.max: 4",)
    assert (finding.severity, finding.disables_device, finding.device) == ("degrades", False, "cpu0")


def test_a_check_may_change_the_severity_of_a_row_and_blocking_follows_it() -> None:
    found = [_ROW.finding(None, (), severity=severity) for severity in ("latent", "blocks", None)]
    assert [(finding.severity, finding.blocking) for finding in found] == [
        ("latent", False),
        ("blocks", True),
        ("degrades", False),
    ]


def test_the_evidence_of_a_log_is_the_whole_printable_line() -> None:
    log = "fine\n  \x1b[31mIllegal instruction\x1b[0m (core dumped)\nafter"
    assert matching_line(log, "Illegal instruction") == "log: [31mIllegal instruction[0m (core dumped)"
    assert matching_line(log, "Bus error") is None


@given(st.text(), st.text())
def test_evidence_is_always_short_and_printable(before: str, after: str) -> None:
    line = matching_line(f"{before}needle{after}", "needle")
    assert line is not None
    assert "needle" in line
    assert len(line) <= 290
    assert line.isprintable()


def test_a_line_that_goes_on_is_cut_at_a_word_and_says_so() -> None:
    line = matching_line("x " * 200 + "needle " + "word " * 100, "needle")
    assert line is not None
    assert line.startswith("log: needle word")
    assert line.endswith(" word …")
    assert matching_line("needle " + "word " * 50, "needle") == "log: needle " + ("word " * 50).strip()


def test_rows_are_loaded_with_the_recipes_that_they_share_after_their_own_fixes(tmp_path: Path) -> None:
    own: FixText = ("shell", "a <x>", "do a", "none")
    shared: FixText = ("docker", None, "do b", "none")
    row = {"severity": "info", "cause": "why.", "fix": [own], "recipes": ["r"], "source": "a thread"}
    other = {**row, "fix": [], "disables_device": True}
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"recipes": {"r": [shared]}, "rows": {"X-01": row, "X-01/other": other}}))
    rows = load_rows(path)
    assert rows["X-01"] == Row("X-01", "info", cause="why.", fix=(own, shared))
    assert rows["X-01/other"] == Row("X-01", "info", cause="why.", fix=(shared,), disables_device=True)
