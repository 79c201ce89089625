"""The schedules of the demo, in the form in which a service publishes them. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Final

SUFFIX_FORMAT: Final = "%y%m%d-%H%M%S"  # of the suffix of each key


class ExpectedEnd(StrEnum):
    """The expected end of the runs of a schedule."""

    SUCCEEDS = "succeeds"
    DIES = "dies"  # and succeeds after a replay
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSchedule:
    """One schedule. `body` is the published JSON, and `expected` is the number of its runs."""

    key: str
    title: str
    body: str
    expected: int
    expected_end: ExpectedEnd


def demo_schedules(target: str, suffix: str) -> list[DemoSchedule]:
    """Return the schedules. `target` is the URL of the web service. `suffix` makes keys unique."""
    at = datetime.strptime(suffix, SUFFIX_FORMAT).replace(tzinfo=UTC) + timedelta(seconds=6)
    make = partial(_demo_schedule, target, suffix)
    soon = {"after": "1s"}
    often = _retry(max_attempts=5, base="500ms")
    seldom = _retry(max_attempts=3, base="1s")
    return [
        make("now", title="now", when={"now": True}),
        make("later", title="in 3 s", when={"after": "3s"}),
        make("at", title="at a time", when={"at": at.isoformat()}),
        make("every", title="every 2 s, 3 times", when={"every": "2s", "times": 3}),
        # bounded, so that the number of runs is known
        make("cron", title="cron */5, 3 times", when={"cron": "*/5 * * * * *", "times": 3}),
        make(
            "any",
            title="any of two rules, 3 times",
            when={"any_of": [{"every": "3s"}, {"cron": "*/4 * * * * *"}], "times": 3},
        ),
        make(
            "again",
            title="1 s after the last, twice",
            when={"every": "1s", "from": "completion", "times": 2},
        ),
        make("until", title="until it succeeds", when={"every": "2s", "until": "success"}),
        make("flaky", title="target fails twice", when=soon, path="flaky", retry=often),
        make(
            "broken",
            title="target is broken",
            when=soon,
            path="broken",
            ending=ExpectedEnd.DIES,
            retry=seldom,
        ),
        make(
            "unwanted",
            title="cancelled in time",
            when={"after": "10s"},
            ending=ExpectedEnd.CANCELLED,
        ),
    ]


def expected_runs(schedules: Sequence[DemoSchedule]) -> int:
    return sum(schedule.expected for schedule in schedules)


def first_with_end(schedules: Sequence[DemoSchedule], ending: ExpectedEnd) -> DemoSchedule:
    """Return the first schedule with this end."""
    return next(schedule for schedule in schedules if schedule.expected_end is ending)


def cancellation(schedule: DemoSchedule) -> str:
    """Return the body of the command that cancels a schedule."""
    return json.dumps({"key": schedule.key, "note": "no longer needed"})


def _demo_schedule(
    target: str,
    suffix: str,
    name: str,
    *,
    title: str,
    when: dict[str, Any],
    path: str = "ok",
    ending: ExpectedEnd = ExpectedEnd.SUCCEEDS,
    **policies: object,
) -> DemoSchedule:
    key = f"demo-{name}-{suffix}"
    http = {"url": f"{target}/{path}", "json": {"from": name}}
    body = json.dumps({"key": key, "when": when, "target": {"http": http}, **policies})
    return DemoSchedule(
        key=key, title=title, body=body, expected=when.get("times", 1), expected_end=ending
    )


def _retry(*, max_attempts: int, base: str) -> dict[str, Any]:
    return {"max_attempts": max_attempts, "backoff": {"base": base, "jitter": "none"}}
