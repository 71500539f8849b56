"""Checks that span vendors, and what their rows say."""

from pathlib import Path

from vllm_probe.core.rows import load_rows

ROWS = load_rows(Path(__file__).with_name("rows.json"))
