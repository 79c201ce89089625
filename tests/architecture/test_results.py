"""The pages of results contain the tables that the command writes from the lines of JSON."""

import json
from pathlib import Path

import pytest
from tests.architecture.documents import word_count
from tests.tools.results import DOCS, PAGES, rendered, rows_of

MAX_WORDS = 800  # of a page that a reader can survey


@pytest.mark.parametrize("name", PAGES)
def test_tables_of_results_are_up_to_date(name: str) -> None:
    page = (DOCS / name).read_text(encoding="utf-8")

    assert page == rendered(page), "Run `.venv/bin/python -m tests.tools.results`."


@pytest.mark.parametrize("name", PAGES)
def test_page_of_results_is_short(name: str) -> None:
    assert word_count((DOCS / name).read_text(encoding="utf-8")) <= MAX_WORDS


@pytest.mark.parametrize(
    "file", sorted((DOCS / "data").glob("*.jsonl")), ids=lambda each: each.stem
)
def test_line_of_data_is_a_row_or_a_note(file: Path) -> None:
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]

    assert len(lines) > 100
    assert all(set(line) in ({"section", "note"}, {"section", "table", "row"}) for line in lines)


def test_table_selects_rows_and_columns_and_keeps_the_comments() -> None:
    options = 'columns="workload;runs a second" rows="9,000 a second"'
    comment = f"<!-- results performance.jsonl Results {options} -->"

    page = rendered(f"{comment}\nold\n<!-- end of results -->\n")

    assert page == (
        f"{comment}\n\n| workload | runs a second |\n|---|---|\n| 9,000 a second | 8,886 |\n\n"
        "<!-- end of results -->\n"
    )


def test_missing_table_and_missing_row_are_errors() -> None:
    with pytest.raises(ValueError, match="no table 7"):
        rows_of(DOCS / "data" / "performance.jsonl", "Results", 7)
    with pytest.raises(ValueError, match="no row 'none'"):
        rendered("<!-- results performance.jsonl Results rows=none -->\n<!-- end of results -->")
