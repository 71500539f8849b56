"""Fuzz targets: `python -m tests.fuzz.NAME FILE...` runs them over files, `one_input` is what a fuzzer calls."""
