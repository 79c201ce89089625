"""The report of a suite: what passed, how long its parts took, and which tests were slow."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.suite.results import Outcome, Result

FOLDER: Final = Path(".harebell")
MAX_UNSTABLE: Final = 2  # tests that passed only when they were repeated alone
SLOWEST: Final = 10  # tests of the report
PER_LINE: Final = (3, 3, 4)  # of the slowest tests


@dataclass(frozen=True, kw_only=True)
class PartReport:
    """One part of a suite, with the results of its failed tests when they were repeated alone.

    `is_broken` means that the part ended without results of its tests.
    """

    name: str
    seconds: float
    results: Sequence[Result] = ()
    repeated: Sequence[Result] = ()
    is_broken: bool = False

    @property
    def unstable(self) -> list[Result]:
        """The first results of the tests that failed and then passed alone."""
        passed = {each.test for each in self.repeated if each.outcome is Outcome.PASSED}
        return [
            each for each in failures_in(self.results) if each.can_repeat and each.test in passed
        ]

    @property
    def failed(self) -> list[Result]:
        """The results of the tests that failed and did not pass alone."""
        unstable = {each.test for each in self.unstable}
        return [each for each in failures_in(self.results) if each.test not in unstable]


@dataclass(frozen=True, kw_only=True)
class Report:
    """The parts of one suite."""

    suite: str
    commit: str
    parts: Sequence[PartReport]

    @property
    def file(self) -> Path:
        """The file of the latest report of the suite."""
        return FOLDER / f"{self.suite}-report.json"

    @property
    def results(self) -> list[Result]:
        return [result for part in self.parts for result in part.results]

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.parts)

    @property
    def unstable(self) -> list[Result]:
        return [result for part in self.parts for result in part.unstable]

    @property
    def failed(self) -> list[Result]:
        return [result for part in self.parts for result in part.failed]

    @property
    def is_green(self) -> bool:
        is_complete = not any(part.is_broken for part in self.parts)
        return is_complete and not self.failed and len(self.unstable) <= MAX_UNSTABLE

    def count(self, outcome: Outcome) -> int:
        return sum(each.outcome is outcome for each in self.results)

    def to_json(self) -> str:
        """Return the report. The commit is present only if the suite passed on it."""
        return json.dumps(
            {
                "suite": self.suite,
                "commit": self.commit if self.is_green else None,
                "passed": self.is_green,
                "seconds": round(self.seconds),
                "counts": {each: self.count(each) for each in Outcome},
                "parts": [
                    {"name": part.name, "seconds": round(part.seconds, 1), "broken": part.is_broken}
                    for part in self.parts
                ],
                "slowest": [
                    {"test": each.test, "seconds": round(each.seconds, 1)}
                    for each in slowest(self.results)
                ],
                "unstable": [asdict(each) for each in self.unstable],
                "failed": [each.test for each in self.failed],
            },
            indent=1,
        )

    def lines(self) -> list[str]:
        """Return the six lines that a person reads."""
        verdict = "passed" if self.is_green else "FAILED"
        broken = "".join(f", {part.name} BROKEN" for part in self.parts if part.is_broken)
        unstable = f", {len(self.unstable)} UNSTABLE" if self.unstable else ""
        parts = ", ".join(f"{part.name} {duration(part.seconds)}" for part in self.parts)
        tests = [
            f"{each.seconds:.1f} s {each.test.partition('::')[2]}" for each in slowest(self.results)
        ]
        first, second = PER_LINE[0], PER_LINE[0] + PER_LINE[1]
        counts = (
            f"{self.count(Outcome.PASSED)} passed, {len(self.failed)} failed, "
            f"{self.count(Outcome.SKIPPED)} skipped{unstable}{broken}"
        )
        return [
            f"`make {self.suite}` {verdict} in {duration(self.seconds)}: {counts}.",
            f"Parts: {parts}.",
            f"Slowest: {'; '.join(tests[:first])}",
            f"  {'; '.join(tests[first:second])}",
            f"  {'; '.join(tests[second:])}",
            f"The commit is {self.commit}, and the report is {self.file}.",
        ]


def failures_in(results: Sequence[Result]) -> list[Result]:
    return [each for each in results if each.outcome is Outcome.FAILED]


def slowest(results: Sequence[Result]) -> list[Result]:
    return sorted(results, key=lambda each: -each.seconds)[:SLOWEST]


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def current_commit() -> str:
    """Return the full id of the commit of the checkout, marked if a file differs from it."""
    commit = _git("rev-parse", "HEAD")
    return f"changes since {commit[:12]}" if _git("status", "--porcelain") else commit


def _git(*arguments: str) -> str:
    command = ("git", *arguments)
    run = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # fixed
    return run.stdout.strip() or ("unknown" if run.returncode else "")
