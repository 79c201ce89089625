"""The verdict of a suite: which failures count, and which are only unstable."""

import json

import pytest
from tests.suite.report import MAX_UNSTABLE, SLOWEST, PartReport, Report
from tests.suite.results import Outcome, Result

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def result(
    test: str, outcome: Outcome = Outcome.PASSED, *, seconds: float = 1.0, can_repeat: bool = True
) -> Result:
    return Result(test=test, outcome=outcome, seconds=seconds, can_repeat=can_repeat)


def failure(test: str, *, can_repeat: bool = True) -> Result:
    return result(test, Outcome.FAILED, can_repeat=can_repeat)


def report_of(
    *results: Result, repeated: tuple[Result, ...] = (), is_broken: bool = False
) -> Report:
    part = PartReport(
        name="integration",
        seconds=75.0,
        results=results,
        repeated=repeated,
        is_broken=is_broken,
    )
    return Report(suite="test", commit=COMMIT, parts=(part,))


def test_suite_is_green_when_each_test_passed_or_was_skipped() -> None:
    report = report_of(result("a"), result("b", Outcome.SKIPPED))

    assert report.is_green
    assert json.loads(report.to_json())["commit"] == COMMIT


def test_test_that_passes_alone_is_unstable_and_the_suite_stays_green() -> None:
    report = report_of(result("a"), failure("b"), repeated=(result("b"),))

    assert report.is_green
    assert [each.test for each in report.unstable] == ["b"]
    assert "1 UNSTABLE" in report.lines()[0]


@pytest.mark.parametrize(
    ("results", "repeated"),
    [
        ((failure("a"),), (failure("a"),)),
        ((failure("a"),), ()),
        ((failure("a", can_repeat=False),), (result("a"),)),
        (
            tuple(failure(f"{n}") for n in range(MAX_UNSTABLE + 1)),
            tuple(result(f"{n}") for n in range(MAX_UNSTABLE + 1)),
        ),
    ],
    ids=["twice", "not repeated", "finding", "too many"],
)
def test_suite_fails(results: tuple[Result, ...], repeated: tuple[Result, ...]) -> None:
    report = report_of(*results, repeated=repeated)

    assert not report.is_green
    assert json.loads(report.to_json())["commit"] is None


def test_suite_fails_when_a_part_ends_without_results() -> None:
    report = report_of(result("a"), is_broken=True)

    assert not report.is_green
    assert "integration BROKEN" in report.lines()[0]


def test_report_has_six_lines_with_the_parts_and_the_slowest_tests() -> None:
    report = report_of(*(result(f"t.py::test_{n}", seconds=n) for n in range(SLOWEST + 1)))

    lines = report.lines()

    assert len(lines) == 6
    assert lines[:2] == [
        "`make test` passed in 1 min 15 s: 11 passed, 0 failed, 0 skipped.",
        "Parts: integration 1 min 15 s.",
    ]
    assert lines[2] == "Slowest: 10.0 s test_10; 9.0 s test_9; 8.0 s test_8"
    assert "test_1;" not in " ".join(lines[2:5])
    assert len(json.loads(report.to_json())["slowest"]) == SLOWEST
