"""Tests of the table of figures: one line for each row of faults."""

from typing import Any

from tests.chaos.report import table
from tests.chaos.result import CheckResult, Finding, FindingKind


def json_line(seed: int, row: str, recovery: float, *findings: Finding) -> dict[str, Any]:
    result = CheckResult(
        findings=findings, expected=10, ran=9, repeated=1, recovery=recovery, lateness=0.25
    )
    return {"seed": seed, "row": row} | result.as_json()


def test_table_combines_the_faults_of_one_row_into_one_line() -> None:
    missing = Finding(FindingKind.MISSING, "key", "never ran")
    lines = [
        json_line(1, "10b", 3.0),
        json_line(2, "9", 1.0),
        json_line(2, "10a", 4.0, missing),
    ]

    _, _, *rows = table(lines)

    assert rows == [
        "| 9 | 1 | 10 | 9 | 1 | 1.0 s | 1.0 s | 0.25 s | 1 of 1 |",
        "| 10 | 2 | 20 | 18 | 2 | 3.5 s | 4.0 s | 0.25 s | 1 of 2 |",
        "| all | 2 | 30 | 27 | 3 | 3.0 s | 4.0 s | 0.25 s | 2 of 3 |",
    ]
