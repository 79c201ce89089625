"""From schedules to rows and tickets."""

from datetime import timedelta
from typing import Any

import pytest
from tests.fakes.schedules import HORIZON, ID, definition
from tests.fakes.tickets import NINE, after

from harebell.contract.amqp_names import Lane
from harebell.contract.downstream import UNKNOWN_DOWNSTREAM
from harebell.contract.ids import RunKey
from harebell.contract.ticket import TICKET_BATCH
from harebell.domain.recurrence import initial_cursor
from harebell.domain.run_states import Reason, ScheduleState
from harebell.messaging.ticket_batches import parse_ticket_headers
from harebell.ticker.model.planning import (
    plan_if_due,
    plan_schedule,
    probably_finished,
    with_staged_runs,
)
from harebell.ticker.model.run_rows import (
    dropped_run_row,
    manual_run_row,
    moved_run_row,
    ticket_headers,
)
from harebell.ticker.model.unit_of_work import ManualRun, ManualRunOrigin, ScheduleRecord
from harebell.ticker.model.version import Version

SECRET = {
    "http": {
        "method": "POST",
        "url": "https://acme.example/hook?a=1",
        "headers": {"X-A": "b"},
        "json": {"größe": [1, None, 2.5]},
    }
}


def version_of(when: dict[str, Any], **policies: Any) -> Version:
    return Version.create(ID, 3, tenant="acme", definition=definition(when, **policies), at=NINE)


def entry_of(when: dict[str, Any], **policies: Any) -> ScheduleRecord:
    version = version_of(when, **policies)
    cursor = initial_cursor(version.recurrence, NINE)
    next_at = version.recurrence.next_after(cursor)
    return ScheduleRecord(
        version, ScheduleState.ACTIVE, planned_until=cursor, changed_at=NINE, next_at=next_at
    )


@pytest.mark.parametrize(
    "policies",
    [
        {},
        {"expires_after": "1m", "priority": 9, "pool": "reports", "class": "critical"},
        {"target": SECRET, "retry": {"max_attempts": 2}, "on_unknown": "skip", "timeout": "5s"},
    ],
)
def test_a_ticket_says_all_that_an_executor_needs(policies: dict[str, Any]) -> None:
    definition_ = definition({"every": "30s", "jitter": "5s"}).model_dump(
        by_alias=True, exclude_none=True
    )
    entry = entry_of(**(definition_ | policies | {"when": {"every": "30s", "jitter": "5s"}}))
    made = plan_schedule(entry, NINE, NINE + HORIZON)
    keys = {run.key: 7 for run in made.to_stage}

    routed = ticket_headers(keys, made.to_stage, [entry.version])

    (ticket, _) = TICKET_BATCH.validate_json(b"[" + b",".join(each.raw for each in routed) + b"]")
    wanted = entry.version.definition
    assert (ticket.run_key, ticket.seq, ticket.version) == (RunKey(after(30), ID), 7, 3)
    assert after(30) <= ticket.due_at < after(35)
    assert ticket.expires_at == (after(90) if "expires_after" in policies else None)
    assert (ticket.pool, ticket.priority) == (wanted.pool, wanted.priority)
    assert ticket.lane is (Lane.HIGH if wanted.priority == 9 else Lane.NORMAL)
    assert (ticket.run_spec.tenant, ticket.run_spec.target) == ("acme", wanted.target)
    assert (ticket.run_spec.retry, ticket.run_spec.on_unknown) == (wanted.retry, wanted.on_unknown)
    assert (ticket.run_spec.timeout, ticket.run_spec.class_) == (wanted.timeout, wanted.class_)


def test_the_dispatcher_reads_the_same_facts_from_a_ticket() -> None:
    entry = entry_of({"every": "30s"})
    made = plan_schedule(entry, NINE, NINE + HORIZON)
    keys = {run.key: 1 for run in made.to_stage}

    routed = ticket_headers(keys, made.to_stage, [entry.version])

    read = parse_ticket_headers(b"[" + b",".join(each.raw for each in routed) + b"]")
    bare = [
        each._replace(raw=b"", downstream=UNKNOWN_DOWNSTREAM) for each in read
    ]  # that, only gates ask
    assert bare == [each._replace(raw=b"") for each in routed]


def test_what_was_not_staged_has_no_ticket() -> None:
    entry = entry_of({"every": "30s"})
    made = plan_schedule(entry, NINE, NINE + HORIZON)
    _, second = (run.key for run in made.to_stage)

    routed = ticket_headers({second: 4}, made.to_stage, [entry.version])

    assert [(each.key, each.seq) for each in routed] == [(second, 4)]


@pytest.mark.requirement("S12")
def test_a_schedule_that_cannot_be_computed_is_parked_with_its_reason() -> None:
    broken = version_of({"cron": "0 9 * * *", "timezone": "Mars/Olympus"})
    entry = ScheduleRecord(
        broken, ScheduleState.ACTIVE, planned_until=NINE, changed_at=NINE, next_at=NINE
    )

    made = plan_schedule(entry, NINE, NINE + HORIZON)

    assert (made.to_stage, made.skipped) == ([], [])
    assert (made.record.state, made.record.next_at) == (ScheduleState.ERRORED, None)
    assert "Mars/Olympus" in (made.record.reason or "")


@pytest.mark.requirement("S49")
def test_what_is_owed_and_the_new_cursor_come_together() -> None:
    made = plan_schedule(entry_of({"every": "30s"}), NINE, NINE + HORIZON)

    assert [run.key.scheduled_for for run in made.to_stage] == [after(30), after(60)]
    assert (made.record.planned_until, made.record.next_at) == (after(60), after(90))
    assert made.record.dispatched == 0


@pytest.mark.parametrize("next_at", [None, after(85)])
def test_what_is_not_due_within_the_horizon_is_left_as_it_is(next_at: Any) -> None:
    entry = entry_of({"every": "30s"})._replace(next_at=next_at)

    made = plan_if_due(entry, NINE, NINE + HORIZON)

    assert made.record is entry
    assert (made.to_stage, made.skipped) == ([], [])


def test_the_last_run_completes_a_schedule() -> None:
    made = plan_schedule(entry_of({"now": True}), NINE, NINE + HORIZON)

    assert (made.record.state, made.record.next_at) == (ScheduleState.COMPLETED, None)


@pytest.mark.requirement("S76")
def test_missed_instants_are_a_range_in_the_place_of_their_version() -> None:
    entry = entry_of({"every": "1m"}, catch_up={"mode": "none"}, pool="reports")

    made = plan_schedule(entry, after(600), after(600) + HORIZON)

    (skip,) = made.skipped
    assert (skip.key, skip.until, skip.count) == (RunKey(after(60), ID), after(480), 8)
    assert (skip.reason, skip.placement.pool) == (Reason.MISSED, "reports")


def test_a_range_begins_behind_the_instants_that_have_a_run() -> None:
    entry = entry_of({"every": "1m"}, catch_up={"mode": "none"})
    claimed = entry._replace(open_runs=(after(60), after(120)))

    made = plan_schedule(claimed, after(600), after(600) + HORIZON)

    (skip,) = made.skipped
    assert (skip.key, skip.until, skip.count) == (RunKey(after(180), ID), after(480), 6)


def test_a_range_of_which_every_instant_has_a_run_is_not_made() -> None:
    entry = entry_of({"every": "1m", "end": "2026-11-20T09:02:00Z"}, catch_up={"mode": "none"})
    claimed = entry._replace(open_runs=(after(60), after(120)))

    made = plan_schedule(claimed, after(600), after(600) + HORIZON)

    assert made.skipped == []


@pytest.mark.requirement("S06")
def test_only_what_was_staged_counts() -> None:
    made = plan_schedule(entry_of({"every": "30s"}), NINE, NINE + HORIZON)
    first, second = (run.key for run in made.to_stage)

    standing = with_staged_runs(made, {second}, set())

    assert (standing.dispatched, standing.open_runs) == (1, (after(60),))
    assert first.scheduled_for not in standing.open_runs


@pytest.mark.requirement("S06")
def test_what_had_run_already_leaves_room_for_one_more() -> None:
    made = plan_schedule(entry_of({"every": "30s", "times": 2}), NINE, NINE + HORIZON)
    before, (_, second) = made.record.state, (run.key for run in made.to_stage)

    standing = with_staged_runs(made, {second}, set())

    assert before is ScheduleState.COMPLETED
    assert (standing.state, standing.next_at) == (ScheduleState.ACTIVE, after(90))


def test_open_runs_that_have_ended_are_forgotten() -> None:
    entry = entry_of({"every": "30s"})._replace(open_runs=(after(-120), after(-90)))
    made = plan_if_due(entry, after(-100), after(-90))

    standing = with_staged_runs(made, set(), {RunKey(after(-120), ID)})

    assert standing.open_runs == (after(-90),)


def test_a_run_is_looked_up_again_only_when_it_is_over_15_s_old() -> None:
    entry = entry_of({"every": "30s"})._replace(open_runs=(after(-16), after(-15), after(30)))

    assert probably_finished(entry, NINE) == [RunKey(after(-16), ID)]


def test_a_triggered_run_is_due_at_once_whatever_the_jitter() -> None:
    version = version_of({"every": "1h", "jitter": "1h"}, expires_after="10s")

    owed = manual_run_row(ManualRun(version, NINE, ManualRunOrigin.TRIGGER))

    assert (owed.due_at, owed.origin) == (NINE, ManualRunOrigin.TRIGGER)
    assert owed.expires_at == NINE + timedelta(seconds=10)


def test_a_run_that_takes_a_version_expires_as_that_says() -> None:
    key = RunKey(after(30), ID)

    taken = moved_run_row(key, version_of({"every": "30s"}, expires_after="1m", priority=9))

    assert (taken.key, taken.placement.version, taken.placement.priority) == (key, 3, 9)
    assert taken.expires_at == after(90)
    assert moved_run_row(key, version_of({"every": "30s"})).expires_at is None


def test_a_trigger_that_was_withdrawn_is_one_skipped_instant() -> None:
    extra = ManualRun(version_of({"every": "1h"}), NINE, ManualRunOrigin.TRIGGER)

    skip = dropped_run_row(extra, Reason.PAUSED)

    assert (skip.key, skip.until, skip.count) == (RunKey(NINE, ID), NINE, 1)
    assert skip.reason == Reason.PAUSED
