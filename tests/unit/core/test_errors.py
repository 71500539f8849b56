"""Codes are unique, and the page that lists them is complete."""

from pathlib import Path

from vllm_probe.core import errors

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "errors.md"


def test_every_code_is_unique_and_has_a_documented_exit_code() -> None:
    classes = list(errors.all_errors())
    assert len({cls.code for cls in classes}) == len(classes)
    assert {cls.exit_code for cls in classes} == {1, 2, 3, 101, 130}


def test_the_table_in_the_docs_lists_exactly_the_codes_with_their_exit_codes() -> None:
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    documented = {row[1].strip(" `"): int(row[2]) for row in rows}
    assert documented == {cls.code: cls.exit_code for cls in errors.all_errors()}


def test_the_tree_in_the_module_names_every_code() -> None:
    assert all(cls.code in (errors.__doc__ or "") for cls in errors.all_errors())
