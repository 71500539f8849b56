"""Predictions against published speeds: the table of benchmarks/throughput_cases.py."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
CASES = ROOT.parent / "shared" / "data" / "throughput_cases.jsonl"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("throughput_cases", ROOT / "benchmarks" / "throughput_cases.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module  # where a dataclass looks its module up
    spec.loader.exec_module(module)
    return module


def row(**keys: Any) -> dict[str, Any]:
    known = {"engine": "vLLM", "hw": "A100-80GB", "hw_count": 1, "model": "Qwen3-14B", "precision": "bf16", "batch": 1}
    lengths = {"in_len": 128, "out_len": 128, "metric": "tpot_ms", "value": 24.3, "grade": "A"}
    return {"id": "one", **known, **lengths, **keys}


def test_a_row_is_asked_as_it_was_measured_and_another_engine_is_left_out(script: ModuleType, tmp_path: Path) -> None:
    rows = [row(), row(id="two", batch="saturated", metric="total_tok_s", value=9000.0), row(engine="llama.cpp")]
    rows += [row(note="TP8+DCP8")]
    rows += [row(hw="abacus"), row(model="unheard-of"), row(grade="C")]
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    asked = list(script.questions(path))
    assert [each.row["id"] for each in asked] == ["one", "two"]
    assert [each.sized.case.workload.concurrency for each in asked] == [1, 256]
    first, second = script.points(asked)
    assert first.metric == "tpot"
    assert first.measured == pytest.approx(0.0243)
    assert second.measured == pytest.approx(4500)
    assert len(list(script.report([first, second]))) >= 5


@pytest.mark.skipif(not CASES.exists(), reason="the published rows are not beside this repository")
def test_four_of_five_published_speeds_of_cells_that_were_held_out_lie_in_the_band(script: ModuleType) -> None:
    found = list(script.points(list(script.questions(CASES))))
    sys.stdout.write("\n".join(["", *script.report(found), ""]))
    held_out = [point for point in found if not point.is_fitted]
    for metric, most in (("speed", 0.65), ("tpot", 0.2), ("ttft", 0.35)):
        rows = [point for point in held_out if point.metric == metric]
        assert len(rows) > 20
        assert script.share_inside(rows) >= 0.8, metric
        assert script.median_error(rows) <= most, metric
    assert script.share_inside(found) >= 0.8
