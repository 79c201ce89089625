"""Writing a book back, and with it what has come to be due within the horizon."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from harebell.contract.ids import RunKey
from harebell.domain.run_states import NewRun, RunState, SkippedRange
from harebell.messaging.ticket_batches import TicketHeader
from harebell.storage.runs import staging
from harebell.storage.runs.tickets import rebuild_tickets
from harebell.ticker.model import planning, run_rows
from harebell.ticker.model.unit_of_work import ScheduleRecord, UnitOfWork
from harebell.ticker.model.version import Version
from harebell.ticker.store import schedules, versions


@dataclass(frozen=True, slots=True)
class SaveResult:
    """What a transaction is to publish before it commits, and what changed by itself in it."""

    tickets: list[TicketHeader]
    steps: Sequence[planning.PlanningStep]
    records: Sequence[ScheduleRecord]

    @property
    def decided_keys(self) -> set[RunKey]:
        """Runs that it handed over or skipped, though they may have been withdrawn in it first."""
        skipped = {skip.key for made in self.steps for skip in made.skipped}
        return skipped | {ticket.key for ticket in self.tickets}


async def save_unit_of_work(
    connection: asyncpg.Connection, book: UnitOfWork, now: datetime, until: datetime
) -> SaveResult:
    await versions.save_versions(connection, book.new_versions)
    await versions.record_handovers(connection, book.handovers)
    await versions.save_active_versions(connection, book.versions_in_force)
    await staging.cancel(connection, book.cancelled_runs)
    await staging.request_stop(connection, book.stop_requests)
    await staging.move_to_version(
        connection, [run_rows.moved_run_row(*each) for each in book.moved_to_version.items()]
    )
    await staging.resolve(connection, book.resolved_runs)
    await staging.skip(connection, [run_rows.dropped_run_row(*each) for each in book.dropped_manual_runs])
    await versions.update_statuses(connection, book.version_statuses)
    touched = [book.schedules[id_] for id_ in sorted(book.changed_ids, key=int)]
    advances = [planning.plan_if_due(entry, now, until) for entry in touched]
    extra = [run_rows.manual_run_row(each) for each in book.manual_runs]
    of = [each.version for each in book.manual_runs]
    saved = await save_planning_steps(connection, advances, now, extra=extra, of=of)
    retried = (key for key, state in book.resolved_runs.items() if state is RunState.STAGED)
    again = sorted({*book.moved_to_version, *retried})
    tickets = await rebuild_tickets(connection, again) if again else []
    return SaveResult(
        saved.tickets + [TicketHeader.of(ticket) for ticket in tickets], advances, saved.records
    )


async def save_planning_steps(
    connection: asyncpg.Connection,
    advances: Sequence[planning.PlanningStep],
    now: datetime,
    *,
    extra: Sequence[NewRun] = (),
    of: Sequence[Version] = (),
) -> SaveResult:
    """Insert what is owed and what is not; the schedules as they stand then, and the tickets.

    `extra`: runs that no timetable owes, of schedules that have noted them already.
    """
    again, not_again = await _owed_again(connection, [each.previous for each in advances], now)
    owed = [
        *(run for each in advances for run in (*each.to_stage, *each.to_stage_early)),
        *again,
        *extra,
    ]
    skips = [skip for each in advances for skip in each.skipped]
    await staging.skip(connection, [*skips, *not_again])
    staged = await staging.stage(connection, owed) if owed else {}
    doubtful = [key for each in advances for key in planning.probably_finished(each.record, now)]
    ended = set(doubtful) - await schedules.find_open(connection, doubtful)
    unstaged = [key for each in advances for key in planning.not_newly_staged(each, staged)]
    there = await schedules.find_counted(connection, unstaged)
    standing = [planning.with_staged_runs(each, staged, ended, there) for each in advances]
    commenced = [e.record.version for e in advances if e.record.version is not e.previous.version]
    await versions.save_active_versions(connection, commenced)
    fates = {key: fate for each in advances for key, fate in each.version_statuses.items()}
    await versions.update_statuses(connection, fates)
    takeovers = [each.handover for each in advances if each.handover is not None]
    await versions.record_handovers(connection, takeovers)
    await schedules.save_states(connection, standing)
    in_force = (each.previous.version for each in advances)
    known = [*in_force, *(version for each in advances for version in each.versions), *of]
    return SaveResult(run_rows.ticket_headers(staged, owed, known), advances, standing)


async def _owed_again(
    connection: asyncpg.Connection, entries: Sequence[ScheduleRecord], now: datetime
) -> tuple[list[NewRun], list[SkippedRange]]:
    """Of schedules that have just been resumed; hardly ever any."""
    noted = [RunKey(moment, entry.id) for entry in entries for moment in entry.to_restage]
    taken_back = await schedules.find_unstaged_by_pause(connection, noted)
    made = [run_rows.restage(entry, taken_back, now) for entry in entries if entry.to_restage]
    return [run for runs, _ in made for run in runs], [skip for _, ss in made for skip in ss]
