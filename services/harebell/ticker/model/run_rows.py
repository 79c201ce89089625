"""What is owed as rows of the ledger, and the tickets that announce them. Pure."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

import orjson

from harebell.contract.amqp_names import Lane, lane_of
from harebell.contract.ids import RunKey
from harebell.contract.types import instant_text
from harebell.domain.planner import catch_up, new_run
from harebell.domain.run_states import NewRun, Placement, Reason, SkippedRange
from harebell.messaging.ticket_batches import TicketHeader
from harebell.ticker.model.unit_of_work import ManualRun, ManualRunOrigin, ScheduleRecord
from harebell.ticker.model.version import Version


def manual_run_row(extra: ManualRun) -> NewRun:
    """One run beside the timetable: due at once, whatever the jitter."""
    version = extra.version
    run = new_run(version.policy, version.schedule_id, extra.scheduled_for)
    key = RunKey(extra.scheduled_for, version.schedule_id)
    override = None if extra.overlap is None else f'{{"overlap":"{extra.overlap}"}}'
    late = None if extra.origin is ManualRunOrigin.BACKFILL else run.expires_at
    return NewRun(key, placement_of(version), extra.scheduled_for, late, extra.origin, override)


def moved_run_row(key: RunKey, version: Version) -> NewRun:
    """A run that takes this version. When it is due stays as it was."""
    run = new_run(version.policy, version.schedule_id, key.scheduled_for)
    return NewRun(key, placement_of(version), run.due_at, run.expires_at)


def dropped_run_row(extra: ManualRun, reason: Reason) -> SkippedRange:
    """A run that was cancelled in the transaction that would have made it."""
    key = RunKey(extra.scheduled_for, extra.version.schedule_id)
    return SkippedRange(key, placement_of(extra.version), extra.scheduled_for, 1, reason)


def restage(
    entry: ScheduleRecord, taken_back: Collection[RunKey], now: datetime
) -> tuple[list[NewRun], list[SkippedRange]]:
    """Of what a pause took back that no timetable brings again."""
    version, place = entry.version, placement_of(entry.version)
    moments = [moment for moment in entry.to_restage if RunKey(moment, entry.id) in taken_back]
    runs, skips = catch_up(version.policy, entry.id, moments, now)
    return (
        [NewRun(RunKey(r.scheduled_for, entry.id), place, r.due_at, r.expires_at) for r in runs],
        [SkippedRange(RunKey(s.first, entry.id), place, s.last, s.count, s.reason) for s in skips],
    )


def placement_of(version: Version) -> Placement:
    terms = version.policy
    lane = lane_of(terms.priority)
    return Placement(version.tenant, version.number, terms.pool, lane, terms.priority)


def ticket_headers(
    staged: Mapping[RunKey, int], owed: Iterable[NewRun], versions: Iterable[Version]
) -> list[TicketHeader]:
    """The tickets of what was staged, by the seq that each row has."""
    by_number = {(version.schedule_id, version.number): version for version in versions}
    return [
        _ticket(run, staged[run.key], by_number[run.key.schedule_id, run.placement.version])
        for run in owed
        if run.key in staged
    ]


def _ticket(run: NewRun, seq: int, version: Version) -> TicketHeader:
    """As `contract.ticket.Ticket` reads it; the work travels as it is stored."""
    place = run.placement
    raw = orjson.dumps(
        {
            "schedule_id": str(run.key.schedule_id),
            "scheduled_for": instant_text(run.key.scheduled_for),
            "due_at": instant_text(run.due_at),
            "expires_at": run.expires_at and instant_text(run.expires_at),
            "seq": seq,
            "version": place.version,
            "pool": place.pool,
            "lane": place.lane,
            "priority": place.priority,
            "override": run.override and orjson.Fragment(run.override),
            "run_spec": orjson.Fragment(version.run_spec),
        }
    )
    return TicketHeader(
        key=run.key,
        seq=seq,
        due_at=run.due_at,
        pool=place.pool,
        lane=Lane(place.lane),
        priority=place.priority,
        raw=raw,
        tenant=place.tenant,
    )
