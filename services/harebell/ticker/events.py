"""The events about schedules and runs, and the stop requests, after a commit of the ticker."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from harebell.contract.events import make_event
from harebell.contract.ids import RunKey
from harebell.contract.when import Recurring
from harebell.domain.run_states import (
    Reason,
    RunState,
    ScheduleState,
    is_executor,
    unstaged_state,
)
from harebell.messaging.event_publisher import OutgoingEvent
from harebell.messaging.publisher import OutgoingMessage
from harebell.messaging.run_events import run_event_without_attempt, stop_request_message
from harebell.ticker import metrics
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork
from harebell.ticker.plan_writer import SaveResult

ACTIVATE: Final = "activate"  # the label of a change that waited for its effective time

# The other states have the event `schedule.<state>`.
_STATE_EVENTS: Final = {ScheduleState.ACTIVE: "schedule.resumed"}


def stop_request_messages(unit: UnitOfWork) -> list[OutgoingMessage]:
    """Return one message for each executor with a run to stop.

    The message is faster than the next lease renewal, which also returns the stop requests.
    """
    by_holder: dict[str, list[RunKey]] = {}
    for key, reason in unit.stop_requests.items():
        run = unit.open_runs.get(key)
        if reason is not None and run is not None and is_executor(run.lease_holder):
            by_holder.setdefault(run.lease_holder, []).append(key)
    return [stop_request_message(holder, keys) for holder, keys in by_holder.items()]


def unstaged_run_events(
    unit: UnitOfWork, saved: SaveResult, now: datetime
) -> Iterator[OutgoingEvent]:
    """Yield the events of the runs that the batch cancelled, dropped or resolved."""
    decided = saved.decided_keys
    for key, reason in unit.cancelled_runs.items():
        if key not in decided:
            tenant = unit.schedules[key.schedule_id].version.tenant
            yield run_event_without_attempt(
                tenant, key, state=unstaged_state(reason), reason=reason, finished_at=now
            )
    for run, reason in unit.dropped_manual_runs:
        yield run_event_without_attempt(
            run.version.tenant,
            run.key,
            state=RunState.SKIPPED,
            reason=reason,
            finished_at=now,
        )
    for key, state in unit.resolved_runs.items():
        if state is not RunState.STAGED:
            tenant = unit.schedules[key.schedule_id].version.tenant
            yield run_event_without_attempt(
                tenant, key, state=state, reason=Reason.MANUAL, finished_at=now
            )


def planning_events(saved: SaveResult, now: datetime) -> Iterator[OutgoingEvent]:
    """Yield the events of skipped ranges, new schedule states and activated versions."""
    records = {record.id: record for record in saved.records}
    for step in saved.steps:
        for skipped in step.skipped:
            yield run_event_without_attempt(
                skipped.placement.tenant,
                skipped.key,
                state=RunState.SKIPPED,
                reason=skipped.reason,
                finished_at=now,
                runs=skipped.count,
            )
        record = records.get(step.previous.id, step.record)
        if has_new_state(step.previous, record):
            yield schedule_state_event(record, now)
        if record.version is not step.previous.version:
            seconds = (now - record.version.since).total_seconds()
            metrics.CHANGE_LATENCY.labels(ACTIVATE).observe(max(0.0, seconds))
            yield schedule_state_event(record, now, verb="schedule.updated")


def has_new_state(before: ScheduleRecord, after: ScheduleRecord) -> bool:
    """Return whether the visible state of a schedule changed to a state with an event."""
    state = after.visible_state
    if state is before.visible_state:
        return False
    return state is not ScheduleState.COMPLETED or has_completion_event(after)


def has_completion_event(record: ScheduleRecord) -> bool:
    """Return whether the end of the schedule has an event.

    The event of its only run is the end of a one-shot.
    A second event for each one-shot would double the events of the ticker.
    """
    return isinstance(record.version.policy.when, Recurring)


def schedule_state_event(
    record: ScheduleRecord,
    now: datetime,
    *,
    verb: str | None = None,
    result: RunState | None = None,
) -> OutgoingEvent:
    """Return the event of a schedule that changed without a command.

    `result` is the state of the last run of a completed schedule.
    """
    state = record.visible_state
    verb = verb or _STATE_EVENTS.get(state, f"schedule.{state}")
    key, tenant = record.version.policy.key, record.version.tenant
    data = {  # the fields of `ScheduleEventData`
        "schedule_id": record.id,
        "key": key,
        "version": record.version.number,
        "state": state,
        "result": result,
        "note": record.reason,
        "next_at": record.next_at,
    }
    id_, subject = f"{record.id}/{now.isoformat()}", key or str(record.id)
    event = make_event(tenant, verb, data, id_=id_, subject=subject, at=now)
    return OutgoingEvent(tenant, verb, event)
