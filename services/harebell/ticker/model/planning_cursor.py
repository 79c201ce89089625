"""TODO: describe this module."""

from harebell.domain.run_states import ScheduleState
from harebell.ticker.model.unit_of_work import ScheduleRecord


def resume_planning(entry: ScheduleRecord) -> ScheduleRecord:
    """As it goes on after a pause or a hold; failures are counted afresh.

    What a version before owed and a pause took back is owed again: no timetable brings it.
    """
    past = (
        run for run in entry.open_runs if run <= entry.planned_until and run != entry.awaited_run
    )
    mine = (run for run in past if entry.version_at(run) is entry.version)
    again = tuple(run for run in mine if not entry.version.includes(run))
    return continue_planning(entry)._replace(paused_until=None, failures=0, to_restage=again)


def continue_planning(entry: ScheduleRecord) -> ScheduleRecord:
    """Active from where planning stands, unless nothing is left to come."""
    awaited = entry.awaited_run if entry.awaited_run in entry.open_runs else None
    instants = [None if awaited else entry.next_time, entry.pending_at]
    next_at = min(filter(None, instants), default=None)
    return entry._replace(
        state=ScheduleState.ACTIVE if next_at or awaited else ScheduleState.COMPLETED,
        next_at=next_at,
        awaited_run=awaited,
        reason=None,
    )
