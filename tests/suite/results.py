"""The results of tests: a pytest plugin that records them, and the values that a suite reads.

The plugin runs in the process that starts the workers: `-p tests.suite.results`.
"""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import pytest

VARIABLE: Final = "TEST_RESULTS"  # the environment variable; the settings refuse unknown HAREBELL_*
MAX_FAILURE_TEXT: Final = 30_000  # characters; the end of a longer text is the interesting part


class LostOrDoubledRun(AssertionError):
    """A run that a check found lost or doubled, which a repeated test must not hide."""


class Outcome(StrEnum):
    """The outcome of one test."""

    PASSED = "passed"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class Result:
    """The outcome of one test with its set-up and its end. `failure` is the report of a failure."""

    test: str
    outcome: Outcome
    seconds: float
    failure: str = ""
    can_repeat: bool = False


def pytest_configure(config: pytest.Config) -> None:
    """Record the reports. A worker sends its reports to the process that records them."""
    if (path := os.environ.get(VARIABLE)) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(path)))


class Recorder:
    """A plugin that appends one line of JSON for each report of a test and of a collection."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._append(
            test=report.nodeid,
            outcome=report.outcome,
            seconds=report.duration,
            failure=failure_text(report) if report.failed else "",
            can_repeat="server" in report.keywords and not is_finding(report),
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            failure = failure_text(report)
            self._append(test=report.nodeid, outcome="failed", seconds=0.0, failure=failure)

    def _append(self, **record: Any) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def failure_text(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the traceback and the captured output, cut at the start."""
    sections = (f"--- {title} ---\n{text}" for title, text in report.sections)
    return "\n".join((report.longreprtext, *sections))[-MAX_FAILURE_TEXT:]


def is_finding(report: pytest.TestReport) -> bool:
    """Return whether the failure of a test is a lost or doubled run."""
    crash = getattr(report.longrepr, "reprcrash", None)
    name = f"{LostOrDoubledRun.__module__}.{LostOrDoubledRun.__qualname__}"
    return crash is not None and crash.message.startswith(name)


def read_results(path: Path) -> list[Result]:
    """Return one result for each test: the sum of its phases, in the order of their ends."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    return list(combined(json.loads(line) for line in lines))


def combined(records: Iterable[dict[str, Any]]) -> Iterator[Result]:
    """Yield the result of each test from the records of its set-up, its call and its end."""
    phases: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        phases.setdefault(record["test"], []).append(record)
    for test, each in phases.items():
        outcomes = {record["outcome"] for record in each}
        yield Result(
            test=test,
            outcome=next(known for known in reversed(Outcome) if known in outcomes),
            seconds=sum(record["seconds"] for record in each),
            failure="\n".join(record["failure"] for record in each if record.get("failure")),
            can_repeat=all(record.get("can_repeat", False) for record in each),
        )
