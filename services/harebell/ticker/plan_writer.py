"""Writing a batch and its plan: changes, the rows of new runs, and then the states of schedules.

Only the insert can tell which runs exist already, and a run that is staged again has not ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

import asyncpg

from harebell.contract.ids import RunKey
from harebell.domain.run_states import NewRun, SkippedRange
from harebell.messaging.ticket_batches import TicketHeader
from harebell.storage.runs import staging
from harebell.ticker.model import counted_runs, run_rows
from harebell.ticker.model.planning_window import PlanningStep
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork
from harebell.ticker.store import schedules, versions


async def save_unit_of_work(connection: asyncpg.Connection, unit: UnitOfWork) -> None:
    """Write the versions and the changed runs of the unit."""
    await versions.save_versions(connection, unit.new_versions)
    await versions.record_handovers(connection, unit.handovers)
    await versions.save_active_versions(connection, unit.versions_in_force)
    await versions.delete_calendar_uses(connection, unit.unused_calendars)
    await versions.save_calendar_uses(connection, (version for version, _ in unit.new_versions))
    await versions.save_calendars(connection, unit.new_calendars)
    await staging.cancel(connection, unit.cancelled_runs)
    await staging.request_stop(connection, unit.stop_requests)
    moved = [run_rows.moved_run_row(*each) for each in unit.moved_to_version.items()]
    await staging.move_to_version(connection, moved, unit.new_due_times)
    await staging.resolve(connection, unit.resolved_runs)
    dropped = [run_rows.dropped_run_row(*each) for each in unit.dropped_manual_runs]
    await staging.skip(connection, dropped)
    await versions.update_statuses(connection, unit.version_statuses)


async def save_activations(connection: asyncpg.Connection, steps: Sequence[PlanningStep]) -> None:
    """Write the pending versions that became active or failed."""
    activated = [
        each.record.version for each in steps if each.record.version is not each.previous.version
    ]
    await versions.save_active_versions(connection, activated)
    statuses = {key: value for each in steps for key, value in each.version_statuses.items()}
    await versions.update_statuses(connection, statuses)
    handovers = [each.handover for each in steps if each.handover is not None]
    await versions.record_handovers(connection, handovers)


@dataclass(frozen=True, slots=True)
class SaveResult:
    """The tickets to publish before the commit, and the saved planning steps and schedules."""

    tickets: list[TicketHeader]
    steps: Sequence[PlanningStep]
    records: Sequence[ScheduleRecord]

    @property
    def decided_keys(self) -> set[RunKey]:
        """Return the runs that planning staged or skipped after the batch unstaged them."""
        skipped = {each.key for step in self.steps for each in step.skipped}
        return skipped | {ticket.key for ticket in self.tickets}


async def save_planning_steps(
    connection: asyncpg.Connection, steps: Sequence[PlanningStep], *, now: datetime
) -> SaveResult:
    """Stage the runs of the steps, write the skipped ranges and write the schedule states."""
    restaged, not_restaged = await _restage(connection, [each.previous for each in steps], now)
    runs = [
        *(run for each in steps for run in (*each.to_stage, *each.to_stage_early)),
        *restaged,
        *(run for each in steps for run in each.manual_runs),
    ]
    await staging.skip(connection, [*chain(*(each.skipped for each in steps)), *not_restaged])
    staged = await staging.stage(connection, runs) if runs else {}
    old = [key for each in steps for key in counted_runs.probably_finished(each.record, now)]
    ended = await schedules.find_ended(connection, old)
    not_staged = [key for each in steps for key in counted_runs.not_newly_staged(each, staged)]
    existing = await schedules.find_counted(connection, not_staged)
    records = [
        counted_runs.with_staged_runs(each, staged, ended, existing=existing) for each in steps
    ]
    await save_activations(connection, steps)
    await schedules.save_states(connection, records)
    in_force = (each.previous.version for each in steps)
    known = [*in_force, *(version for each in steps for version in each.versions)]
    return SaveResult(run_rows.ticket_headers(staged, runs, known), steps, records)


async def _restage(
    connection: asyncpg.Connection, records: Sequence[ScheduleRecord], now: datetime
) -> tuple[list[NewRun], list[SkippedRange]]:
    """Return the runs to stage again after a pause. Few schedules have such runs."""
    keys = [RunKey(time, record.id) for record in records for time in record.to_restage]
    unstaged = await schedules.find_unstaged_by_pause(connection, keys)
    results = [run_rows.restage(each, unstaged, now) for each in records if each.to_restage]
    runs = [run for runs, _ in results for run in runs]
    return runs, [skipped for _, ranges in results for skipped in ranges]
