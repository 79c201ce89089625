"""The rows of runs to write to the ledger, and the tickets of these runs."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

import orjson

from harebell.contract.amqp_names import Lane, lane_of
from harebell.contract.ids import RunKey
from harebell.contract.ticket import OVERRIDE_OVERLAP, OVERRIDE_TRACE
from harebell.contract.types import instant_text
from harebell.domain.planner import catch_up, expiry_time, new_run
from harebell.domain.run_states import NewRun, Placement, Reason, SkippedRange
from harebell.messaging.ticket_batches import TicketHeader
from harebell.ticker.model.unit_of_work import ManualRun, ManualRunOrigin, ScheduleRecord
from harebell.ticker.model.version import Version


def placement_of(version: Version) -> Placement:
    policy = version.policy
    lane = lane_of(policy.priority)
    return Placement(version.tenant, version.number, policy.pool, lane, policy.priority)


def manual_run_row(run: ManualRun) -> NewRun:
    """Return the row of a manual run, which is due at once without jitter.

    A run of a backfill does not expire, because its scheduled time is in the past.
    """
    version, is_backfill = run.version, run.origin is ManualRunOrigin.BACKFILL
    return NewRun(
        run.key,
        placement_of(version),
        run.scheduled_for,
        None if is_backfill else expiry_time(version.policy, run.key),
        run.origin,
        _override(run),
    )


def _override(run: ManualRun) -> str | None:
    """Return the override as text in the form that executors write and compare."""
    if run.trace is None:
        return None if run.overlap is None else f'{{"{OVERRIDE_OVERLAP}":"{run.overlap}"}}'
    overlap = {} if run.overlap is None else {OVERRIDE_OVERLAP: run.overlap}
    return orjson.dumps({**overlap, OVERRIDE_TRACE: run.trace}).decode()


def moved_run_row(key: RunKey, version: Version) -> NewRun:
    """Return the row of a run that moves to `version`. The ledger keeps its due time."""
    return new_run(version.policy, key, placement_of(version))


def dropped_run_row(run: ManualRun, reason: Reason) -> SkippedRange:
    """Return the row of a manual run that the batch of its creation also cancelled."""
    return SkippedRange(
        key=run.key,
        placement=placement_of(run.version),
        until=run.scheduled_for,
        count=1,
        reason=reason,
    )


def restage(
    record: ScheduleRecord, unstaged: Collection[RunKey], now: datetime
) -> tuple[list[NewRun], list[SkippedRange]]:
    """Apply the catch-up policy to runs that a pause unstaged and no recurrence returns."""
    version = record.version
    times = [time for time in record.to_restage if RunKey(time, record.id) in unstaged]
    placement = placement_of(version)
    return catch_up(
        version.policy,
        record.id,
        times,
        placement=placement,
        now=now,
        resumed_at=record.paused_until,
    )


def ticket_headers(
    staged: Mapping[RunKey, int], runs: Iterable[NewRun], versions: Iterable[Version]
) -> list[TicketHeader]:
    """Return the tickets of the staged runs. `staged` contains the `seq` of each new row."""
    by_number = {(version.schedule_id, version.number): version for version in versions}
    return [
        _ticket(run, staged[run.key], by_number[run.key.schedule_id, run.placement.version])
        for run in runs
        if run.key in staged
    ]


def _ticket(run: NewRun, seq: int, version: Version) -> TicketHeader:
    """Return a ticket with the fields of `contract.ticket.Ticket` and the stored run spec."""
    placement = run.placement
    raw = orjson.dumps(
        {
            "schedule_id": str(run.key.schedule_id),
            "scheduled_for": instant_text(run.key.scheduled_for),
            "due_at": instant_text(run.due_at),
            "expires_at": run.expires_at and instant_text(run.expires_at),
            "seq": seq,
            "version": placement.version,
            "pool": placement.pool,
            "lane": placement.lane,
            "priority": placement.priority,
            "override": run.override and orjson.Fragment(run.override),
            "run_spec": orjson.Fragment(version.run_spec),
        }
    )
    return TicketHeader(
        key=run.key,
        seq=seq,
        due_at=run.due_at,
        pool=placement.pool,
        lane=Lane(placement.lane),
        priority=placement.priority,
        raw=raw,
        tenant=placement.tenant,
    )
