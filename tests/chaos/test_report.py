"""The table of a chaos run's figures: rows of the matrix, whatever faults there were of each."""

from typing import Any

from tests.chaos.report import table
from tests.chaos.result import Finding, Kind, Verdict


def line(seed: int, row: str, recovery: float, *findings: Finding) -> dict[str, Any]:
    verdict = Verdict(findings, owed=10, ran=9, repeated=1, recovery=recovery, lateness=0.25)
    return {"seed": seed, "row": row} | verdict.as_json()


def test_faults_of_one_row_are_one_line_with_their_seeds_sums_and_worst() -> None:
    lost = Finding(Kind.LOST, "key", "never ran")

    told = list(table([line(1, "10b", 3.0), line(2, "9", 1.0), line(2, "10a", 4.0, lost)]))

    assert told[2:] == [
        "| 9 | 1 | 10 | 9 | 1 | 1.0 s | 1.0 s | 0.25 s | 1 of 1 |",
        "| 10 | 2 | 20 | 18 | 2 | 3.5 s | 4.0 s | 0.25 s | 1 of 2 |",
        "| all | 2 | 30 | 27 | 3 | 3.0 s | 4.0 s | 0.25 s | 2 of 3 |",
    ]
