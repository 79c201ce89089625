"""Tests of the status of schedules on real servers: state, result, last run, next run, counts."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.integration.intake.conftest import IntakeBus
from tests.integration.intake.ledger import (
    insert_run,
    insert_schedule,
    insert_version,
    set_status_columns,
)

from harebell.contract.ids import RunKey
from harebell.contract.types import instant_text, truncate_ms

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

NOW = truncate_ms(datetime.now(UTC))
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DUE = NOW - 60 * SECOND


async def one_shot(intake: IntakeBus, key: str, state: str, **columns: Any) -> None:
    """Insert a one-shot whose only run is due and has this state."""
    await insert_schedule(
        intake.database, "acme", key, created_at=NOW, state="completed", open_runs=[DUE]
    )
    attempt = columns.pop("attempt", 1)
    await insert_run(intake.database, "acme", key, DUE, state=state, attempt=attempt, **columns)


async def keys_in_state(intake: IntakeBus, state: str) -> set[str]:
    page = await intake.query("schedule.list", {"state": state})
    assert {row["state"] for row in page["items"]} <= {state}
    return {row["key"] for row in page["items"]}


@pytest.mark.requirement("S02", "S40")
@pytest.mark.parametrize("state", ["staged", "running", "retrying"])
async def test_one_shot_is_active_while_its_run_is_open(intake: IntakeBus, state: str) -> None:
    await one_shot(intake, "once", state, attempt=int(state != "staged"), late=SECOND)

    schedule = await intake.query("schedule.get", {"key": "once"})

    assert (schedule["state"], schedule.get("result")) == ("active", None)
    assert (schedule["executions"], schedule["failures"]) == (0, 0)
    assert await keys_in_state(intake, "active") == {"once"}
    assert await keys_in_state(intake, "completed") == set()


@pytest.mark.requirement("S02", "S40")
@pytest.mark.parametrize(
    ("state", "attempt", "counts"),
    [
        ("succeeded", 2, (1, 0)),
        ("dead", 3, (1, 1)),
        ("expired", 0, (0, 0)),
        ("expired", 1, (1, 0)),
        ("cancelled", 0, (0, 0)),
        ("skipped", 0, (0, 0)),
        ("unresolved", 1, (0, 0)),
    ],
)
async def test_one_shot_is_completed_with_the_state_in_which_its_run_ended(
    intake: IntakeBus, state: str, attempt: int, counts: tuple[int, int]
) -> None:
    ended = DUE + 30 * SECOND
    await one_shot(
        intake, "once", state, attempt=attempt, late=SECOND, reason="manual", finished_at=ended
    )

    schedule = await intake.query("schedule.get", {"key": "once"})
    (listed,) = (await intake.query("schedule.list", {"state": "completed"}))["items"]

    assert (schedule["state"], schedule["result"]) == ("completed", state)
    assert (schedule["executions"], schedule["failures"]) == counts
    assert "next_at" not in schedule
    assert schedule["last_run"] == {
        "run_id": str(RunKey(DUE, UUID(schedule["id"]))),
        "scheduled_for": instant_text(DUE),
        "state": state,
        "reason": "manual",
        "started_at": instant_text(DUE + SECOND),
        "finished_at": instant_text(ended),
    }
    assert listed == {name: schedule[name] for name in listed}
    assert await keys_in_state(intake, "active") == set()


@pytest.mark.requirement("S06", "S40")
async def test_counts_contain_the_runs_that_the_ticker_has_counted_and_those_that_ended_since(
    intake: IntakeBus,
) -> None:
    states = ["succeeded", "dead", "cancelled", "running", "staged"]
    times = [DUE + n * SECOND for n in range(len(states))]
    id_ = await insert_schedule(
        intake.database, "acme", "often", created_at=NOW, next_at=NOW + HOUR, open_runs=times
    )
    for time, state in zip(times, states, strict=True):
        ended = None if state in ("running", "staged") else NOW
        attempt = 0 if state in ("staged", "cancelled") else 1
        await insert_run(
            intake.database, "acme", "often", time, state=state, attempt=attempt, finished_at=ended
        )
    await insert_run(intake.database, "acme", "often", DUE - HOUR, finished_at=NOW)
    await set_status_columns(intake.database, id_, executions=10, failures=4, last_run=DUE - HOUR)

    schedule = await intake.query("schedule.get", {"key": "often"})

    assert (schedule["executions"], schedule["failures"]) == (12, 5)
    assert schedule["last_run"]["scheduled_for"] == instant_text(times[3])
    assert schedule["last_run"]["state"] == "running"
    assert schedule["next_at"] == instant_text(NOW + HOUR)


@pytest.mark.requirement("S40")
async def test_last_run_is_the_counted_one_when_no_open_run_has_started(intake: IntakeBus) -> None:
    times = [DUE - HOUR, DUE, NOW + HOUR]
    id_ = await insert_schedule(
        intake.database, "acme", "often", created_at=NOW, state="paused", open_runs=times[1:]
    )
    await insert_run(intake.database, "acme", "often", times[0], state="dead", finished_at=NOW)
    for time in times[1:]:
        await insert_run(
            intake.database,
            "acme",
            "often",
            time,
            state="cancelled",
            attempt=0,
            reason="paused",
            finished_at=NOW,
        )
    await set_status_columns(intake.database, id_, executions=1, failures=1, last_run=times[0])

    schedule = await intake.query("schedule.get", {"key": "often"})

    assert schedule["last_run"]["scheduled_for"] == instant_text(times[0])
    assert (schedule["state"], schedule.get("next_at")) == ("paused", None)
    assert (schedule["executions"], schedule["failures"]) == (1, 1)


@pytest.mark.requirement("S06", "S14")
async def test_next_time_is_the_time_of_a_run_when_the_ticker_reads_the_schedule_earlier(
    intake: IntakeBus,
) -> None:
    """The pending version begins in an hour, and the user skipped the next time."""
    first = NOW + 2 * HOUR
    definition = {
        "key": "pending",
        "when": {"every": "1h", "start": instant_text(first)},
        "target": {"task": {"name": "report"}},
    }
    pending = await insert_schedule(
        intake.database,
        "acme",
        "pending",
        created_at=NOW,
        next_at=NOW + HOUR,
        definition=definition | {"when": {"every": "1h"}},
    )
    await insert_version(
        intake.database,
        "acme",
        definition,
        number=2,
        accepted_at=NOW,
        effective_at=NOW + HOUR / 2,
        status="pending",
        actor="test",
    )
    await set_status_columns(intake.database, pending, pending_version=2, pending_at=NOW + HOUR / 2)
    await insert_schedule(
        intake.database,
        "acme",
        "skipped",
        created_at=NOW,
        next_at=first,
        skipped_times=[first],
        definition=definition | {"key": "skipped"},
    )

    rows = (await intake.query("schedule.list", {}))["items"]

    next_times = {row["key"]: row["next_at"] for row in rows}
    assert next_times == {
        "pending": instant_text(first),
        "skipped": instant_text(first + HOUR),
    }
