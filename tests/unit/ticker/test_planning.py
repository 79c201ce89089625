"""Planning steps, rows of runs and tickets."""

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
from harebell.ticker.model.counted_runs import probably_finished, with_staged_runs
from harebell.ticker.model.planning import plan_if_due, plan_schedule
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


def record_of(when: dict[str, Any], **policies: Any) -> ScheduleRecord:
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
def test_ticket_contains_every_field_that_an_executor_needs(policies: dict[str, Any]) -> None:
    definition_ = definition({"every": "30s", "jitter": "5s"}).model_dump(
        by_alias=True, exclude_none=True
    )
    record = record_of(**(definition_ | policies | {"when": {"every": "30s", "jitter": "5s"}}))
    step = plan_schedule(record, NINE, NINE + HORIZON)
    keys = {run.key: 7 for run in step.to_stage}

    headers = ticket_headers(keys, step.to_stage, [record.version])

    (ticket, _) = TICKET_BATCH.validate_json(b"[" + b",".join(each.raw for each in headers) + b"]")
    expected = record.version.definition
    assert (ticket.run_key, ticket.seq, ticket.version) == (RunKey(after(30), ID), 7, 3)
    assert after(30) <= ticket.due_at < after(35)
    assert ticket.expires_at == (after(90) if "expires_after" in policies else None)
    assert (ticket.pool, ticket.priority) == (expected.pool, expected.priority)
    assert ticket.lane is (Lane.HIGH if expected.priority == 9 else Lane.NORMAL)
    assert (ticket.run_spec.tenant, ticket.run_spec.target) == ("acme", expected.target)
    assert (ticket.run_spec.retry, ticket.run_spec.on_unknown) == (
        expected.retry,
        expected.on_unknown,
    )
    assert (ticket.run_spec.timeout, ticket.run_spec.class_) == (expected.timeout, expected.class_)


def test_dispatcher_parses_the_same_header_from_a_ticket() -> None:
    record = record_of({"every": "30s"})
    step = plan_schedule(record, NINE, NINE + HORIZON)
    keys = {run.key: 1 for run in step.to_stage}

    headers = ticket_headers(keys, step.to_stage, [record.version])

    read = parse_ticket_headers(b"[" + b",".join(each.raw for each in headers) + b"]")
    # Only the dispatcher needs the downstream.
    parsed = [each._replace(raw=b"", downstream=UNKNOWN_DOWNSTREAM) for each in read]
    assert parsed == [each._replace(raw=b"") for each in headers]


def test_run_that_was_not_staged_has_no_ticket() -> None:
    record = record_of({"every": "30s"})
    step = plan_schedule(record, NINE, NINE + HORIZON)
    _, second = (run.key for run in step.to_stage)

    headers = ticket_headers({second: 4}, step.to_stage, [record.version])

    assert [(each.key, each.seq) for each in headers] == [(second, 4)]


@pytest.mark.requirement("S12")
def test_recurrence_that_raises_an_error_makes_the_schedule_errored() -> None:
    broken = version_of({"cron": "0 9 * * *", "timezone": "Mars/Olympus"})
    record = ScheduleRecord(
        broken, ScheduleState.ACTIVE, planned_until=NINE, changed_at=NINE, next_at=NINE
    )

    step = plan_schedule(record, NINE, NINE + HORIZON)

    assert (step.to_stage, step.skipped) == ([], [])
    assert (step.record.state, step.record.next_at) == (ScheduleState.ERRORED, None)
    assert "Mars/Olympus" in (step.record.reason or "")


@pytest.mark.requirement("S49")
def test_planning_step_contains_the_runs_and_the_new_cursor() -> None:
    step = plan_schedule(record_of({"every": "30s"}), NINE, NINE + HORIZON)

    assert [run.key.scheduled_for for run in step.to_stage] == [after(30), after(60)]
    assert (step.record.planned_until, step.record.next_at) == (after(60), after(90))
    assert step.record.dispatched == 0


@pytest.mark.parametrize("next_at", [None, after(85)])
def test_schedule_that_is_not_due_within_the_horizon_is_unchanged(next_at: Any) -> None:
    record = record_of({"every": "30s"})._replace(next_at=next_at)

    step = plan_if_due(record, NINE, NINE + HORIZON)

    assert step.record is record
    assert (step.to_stage, step.skipped) == ([], [])


def test_last_run_completes_the_schedule() -> None:
    step = plan_schedule(record_of({"now": True}), NINE, NINE + HORIZON)

    assert (step.record.state, step.record.next_at) == (ScheduleState.COMPLETED, None)


@pytest.mark.requirement("S76")
def test_missed_times_are_one_range_with_the_placement_of_their_version() -> None:
    record = record_of({"every": "1m"}, catch_up={"mode": "none"}, pool="reports")

    step = plan_schedule(record, after(600), after(600) + HORIZON)

    (skip,) = step.skipped
    assert (skip.key, skip.until, skip.count) == (RunKey(after(60), ID), after(480), 8)
    assert (skip.reason, skip.placement.pool) == (Reason.MISSED, "reports")


def test_skipped_range_begins_after_the_times_that_have_a_run() -> None:
    record = record_of({"every": "1m"}, catch_up={"mode": "none"})
    claimed = record._replace(open_runs=(after(60), after(120)))

    step = plan_schedule(claimed, after(600), after(600) + HORIZON)

    (skip,) = step.skipped
    assert (skip.key, skip.until, skip.count) == (RunKey(after(180), ID), after(480), 6)


def test_range_without_a_time_that_lacks_a_run_is_omitted() -> None:
    record = record_of({"every": "1m", "end": "2026-11-20T09:02:00Z"}, catch_up={"mode": "none"})
    claimed = record._replace(open_runs=(after(60), after(120)))

    step = plan_schedule(claimed, after(600), after(600) + HORIZON)

    assert step.skipped == []


@pytest.mark.requirement("S06")
def test_only_staged_runs_count() -> None:
    step = plan_schedule(record_of({"every": "30s"}), NINE, NINE + HORIZON)
    first, second = (run.key for run in step.to_stage)

    updated = with_staged_runs(step, {second}, {})

    assert (updated.dispatched, updated.open_runs) == (1, (after(60),))
    assert first.scheduled_for not in updated.open_runs


@pytest.mark.requirement("S06")
def test_run_that_was_counted_before_leaves_room_in_times() -> None:
    step = plan_schedule(record_of({"every": "30s", "times": 2}), NINE, NINE + HORIZON)
    before, (_, second) = step.record.state, (run.key for run in step.to_stage)

    updated = with_staged_runs(step, {second}, {})

    assert before is ScheduleState.COMPLETED
    assert (updated.state, updated.next_at) == (ScheduleState.ACTIVE, after(90))


def test_ended_runs_are_removed_from_the_open_runs() -> None:
    record = record_of({"every": "30s"})._replace(open_runs=(after(-120), after(-90)))
    step = plan_if_due(record, after(-100), after(-90))

    updated = with_staged_runs(step, set(), {RunKey(after(-120), ID): None})

    assert updated.open_runs == (after(-90),)


def test_run_has_probably_finished_after_15_s() -> None:
    record = record_of({"every": "30s"})._replace(open_runs=(after(-16), after(-15), after(30)))

    assert probably_finished(record, NINE) == [RunKey(after(-16), ID)]


def test_triggered_run_is_due_at_once_without_jitter() -> None:
    version = version_of({"every": "1h", "jitter": "1h"}, expires_after="10s")

    row = manual_run_row(
        ManualRun(version=version, scheduled_for=NINE, origin=ManualRunOrigin.TRIGGER)
    )

    assert (row.due_at, row.origin) == (NINE, ManualRunOrigin.TRIGGER)
    assert row.expires_at == NINE + timedelta(seconds=10)


def test_moved_run_expires_by_its_new_version() -> None:
    key = RunKey(after(30), ID)

    row = moved_run_row(key, version_of({"every": "30s"}, expires_after="1m", priority=9))

    assert (row.key, row.placement.version, row.placement.priority) == (key, 3, 9)
    assert row.expires_at == after(90)
    assert moved_run_row(key, version_of({"every": "30s"})).expires_at is None


def test_dropped_trigger_is_one_skipped_time() -> None:
    manual_run = ManualRun(
        version=version_of({"every": "1h"}), scheduled_for=NINE, origin=ManualRunOrigin.TRIGGER
    )

    skip = dropped_run_row(manual_run, Reason.PAUSED)

    assert (skip.key, skip.until, skip.count) == (RunKey(NINE, ID), NINE, 1)
    assert skip.reason == Reason.PAUSED
