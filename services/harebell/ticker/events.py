"""What a ticker says after a commit: facts about schedules and runs, and orders to stop."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import structlog

from harebell.contract.events import make_event
from harebell.contract.ids import RunKey
from harebell.domain.run_states import Reason, RunState, ScheduleState, unstaged_state
from harebell.messaging.event_publisher import OutgoingEvent
from harebell.messaging.publisher import OutgoingMessage
from harebell.messaging.run_events import run_event_without_attempt, stop_request_message
from harebell.ticker import metrics
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork
from harebell.ticker.store.save import SaveResult

ACTIVATE: Final = "activate"  # of a change that was put off until its time

log = structlog.get_logger()


def stop_request_messages(book: UnitOfWork) -> list[OutgoingMessage]:
    """To each executor that holds a run which should not start; it would learn of it anyway."""
    by_holder: dict[str, list[RunKey]] = {}
    for key, reason in book.stop_requests.items():
        run = book.open_runs.get(key)
        if reason is not None and run is not None and run.lease_holder is not None:
            by_holder.setdefault(run.lease_holder, []).append(key)
    return [stop_request_message(holder, keys) for holder, keys in by_holder.items()]


def unstaged_run_events(
    book: UnitOfWork, saved: SaveResult, now: datetime
) -> Iterator[OutgoingEvent]:
    settled = saved.decided_keys
    withdrawn = {key: why for key, why in book.cancelled_runs.items() if key not in settled}
    for key, reason in withdrawn.items():
        tenant = book.schedules[key.schedule_id].version.tenant
        yield run_event_without_attempt(
            tenant, key, state=unstaged_state(reason), reason=reason, finished_at=now
        )
    for extra, reason in book.dropped_manual_runs:
        key = RunKey(extra.scheduled_for, extra.version.schedule_id)
        yield run_event_without_attempt(
            extra.version.tenant, key, state=RunState.SKIPPED, reason=reason, finished_at=now
        )
    for key, state in book.resolved_runs.items():
        if state is not RunState.STAGED:
            tenant = book.schedules[key.schedule_id].version.tenant
            yield run_event_without_attempt(
                tenant, key, state=state, reason=Reason.MANUAL, finished_at=now
            )


def planning_events(saved: SaveResult, now: datetime) -> Iterator[OutgoingEvent]:
    """What happened to schedules by themselves: instants passed over, a state come to."""
    standing = {entry.id: entry for entry in saved.records}
    for made in saved.steps:
        for skip in made.skipped:
            tenant, key, reason = skip.placement.tenant, skip.key, skip.reason
            yield run_event_without_attempt(
                tenant,
                key,
                state=RunState.SKIPPED,
                reason=reason,
                finished_at=now,
                runs=skip.count,
            )
        entry = standing.get(made.previous.id, made.record)
        if entry.state is not made.previous.state:
            yield schedule_state_event(entry, now)
        if entry.version is not made.previous.version:
            took = (now - entry.version.since).total_seconds()
            metrics.CHANGE_LATENCY.labels(ACTIVATE).observe(max(0.0, took))
            yield schedule_state_event(entry, now, verb="schedule.updated")


_VERBS: Final = {ScheduleState.ACTIVE: "schedule.resumed"}


def schedule_state_event(
    entry: ScheduleRecord, now: datetime, *, verb: str | None = None
) -> OutgoingEvent:
    """Of a schedule that came to a state without being told to."""
    verb = verb or _VERBS.get(entry.state, f"schedule.{entry.state}")
    key, tenant = entry.version.policy.key, entry.version.tenant
    fact = {  # as `ScheduleFact` reads it
        "schedule_id": entry.id,
        "key": key,
        "version": entry.version.number,
        "state": entry.state,
        "note": entry.reason,
        "next_at": entry.next_at,
    }
    id_ = f"{entry.id}/{now.isoformat()}"
    return OutgoingEvent(
        tenant, verb, make_event(tenant, verb, fact, id_=id_, subject=key or str(entry.id), at=now)
    )
