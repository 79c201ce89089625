"""The schedules of the demo, as any service would write them; pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Final

STAMP: Final = "%y%m%d-%H%M%S"  # of the suffix


class ExpectedEnd(StrEnum):
    """What the audience is to see become of a schedule's runs."""

    SUCCEEDS = "succeeds"
    DIES = "dies"  # and succeeds when it is replayed
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class DemoSchedule:
    """One schedule. `body` is the JSON as it is published, `owed` how many runs it asks for."""

    key: str
    title: str
    body: str
    owed: int
    ending: ExpectedEnd


def scenes(target: str, suffix: str) -> list[DemoSchedule]:
    """`target` is the web service's URL. The suffix, the demo's time, makes keys of its own."""
    at = datetime.strptime(suffix, STAMP).replace(tzinfo=UTC) + timedelta(seconds=6)
    make = partial(_scene, target, suffix)
    soon = {"after": "1s"}
    often = _retry(max_attempts=5, base="500ms")
    seldom = _retry(max_attempts=3, base="1s")
    return [
        make("now", "now", {"now": True}),
        make("later", "in 3 s", {"after": "3s"}),
        make("at", "at an instant", {"at": at.isoformat()}),
        make("every", "every 2 s, 3 times", {"every": "2s", "times": 3}),
        # bounded, so that what is owed can be counted
        make("cron", "cron */5, 3 times", {"cron": "*/5 * * * * *", "times": 3}),
        make(
            "any",
            "any of two rules, 3 times",
            {"any_of": [{"every": "3s"}, {"cron": "*/4 * * * * *"}], "times": 3},
        ),
        make(
            "again",
            "1 s after the last, twice",
            {"every": "1s", "from": "completion", "times": 2},
        ),
        make("until", "until it succeeds", {"every": "2s", "until": "success"}),
        make("flaky", "target fails twice", soon, path="flaky", retry=often),
        make(
            "broken", "target is broken", soon, path="broken", ending=ExpectedEnd.DIES, retry=seldom
        ),
        make("unwanted", "cancelled in time", {"after": "10s"}, ending=ExpectedEnd.CANCELLED),
    ]


def expected_runs(cast: Sequence[DemoSchedule]) -> int:
    return sum(scene.owed for scene in cast)


def the_one(cast: Sequence[DemoSchedule], ending: ExpectedEnd) -> DemoSchedule:
    """The first that ends so."""
    return next(scene for scene in cast if scene.ending is ending)


def cancellation(scene: DemoSchedule) -> str:
    """The body of the command that cancels it."""
    return json.dumps({"key": scene.key, "note": "not needed after all"})


def _scene(
    target: str,
    suffix: str,
    name: str,
    title: str,
    when: dict[str, Any],
    *,
    path: str = "ok",
    ending: ExpectedEnd = ExpectedEnd.SUCCEEDS,
    **policies: object,
) -> DemoSchedule:
    key = f"demo-{name}-{suffix}"
    http = {"url": f"{target}/{path}", "json": {"from": name}}
    body = json.dumps({"key": key, "when": when, "target": {"http": http}, **policies})
    return DemoSchedule(key, title, body, when.get("times", 1), ending)


def _retry(*, max_attempts: int, base: str) -> dict[str, Any]:
    return {"max_attempts": max_attempts, "backoff": {"base": base, "jitter": "none"}}
