"""Writing a book back, and with it what has come to be due within the horizon."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from harebell.contract.identity import RunKey
from harebell.kernel.db.ledger import staging
from harebell.kernel.db.tickets import tickets_for
from harebell.kernel.ledger import NotOwed, Owed, RunState
from harebell.kernel.routing import Routed
from harebell.ticker import owing, planning, store, versions
from harebell.ticker.book import Book, Entry
from harebell.ticker.version import Version


@dataclass(frozen=True, slots=True)
class Saved:
    """What a transaction is to publish before it commits, and what changed by itself in it."""

    tickets: list[Routed]
    advances: Sequence[planning.Advance]
    standing: Sequence[Entry]

    @property
    def settled(self) -> set[RunKey]:
        """Runs that it handed over or skipped, though they may have been withdrawn in it first."""
        skipped = {skip.key for made in self.advances for skip in made.not_owed}
        return skipped | {ticket.key for ticket in self.tickets}


async def save_book(
    connection: asyncpg.Connection, book: Book, now: datetime, until: datetime
) -> Saved:
    await versions.save(connection, book.new_versions)
    await versions.take_over(connection, book.takeovers)
    await versions.show(connection, book.in_force)
    await staging.cancel(connection, book.cancelled)
    await staging.request_stop(connection, book.stopping)
    await staging.renew(connection, [owing.renewed(*each) for each in book.renewed.items()])
    await staging.resolve(connection, book.resolved)
    await staging.skip(connection, [owing.dropped(*each) for each in book.dropped])
    await versions.settle_fates(connection, book.fates)
    touched = [book.entries[id_] for id_ in sorted(book.touched, key=int)]
    advances = [planning.advance_if_due(entry, now, until) for entry in touched]
    extra = [owing.extra_owed(each) for each in book.extras]
    of = [each.version for each in book.extras]
    saved = await save_advances(connection, advances, now, extra=extra, of=of)
    retried = (key for key, state in book.resolved.items() if state is RunState.STAGED)
    again = sorted({*book.renewed, *retried})
    tickets = await tickets_for(connection, again) if again else []
    return Saved(
        saved.tickets + [Routed.of(ticket) for ticket in tickets], advances, saved.standing
    )


async def save_advances(
    connection: asyncpg.Connection,
    advances: Sequence[planning.Advance],
    now: datetime,
    *,
    extra: Sequence[Owed] = (),
    of: Sequence[Version] = (),
) -> Saved:
    """Insert what is owed and what is not; the schedules as they stand then, and the tickets.

    `extra`: runs that no timetable owes, of schedules that have noted them already.
    """
    again, not_again = await _owed_again(connection, [each.before for each in advances], now)
    owed = [*(run for each in advances for run in (*each.owed, *each.ahead)), *again, *extra]
    skips = [skip for each in advances for skip in each.not_owed]
    await staging.skip(connection, [*skips, *not_again])
    staged = await staging.stage(connection, owed) if owed else {}
    doubtful = [key for each in advances for key in planning.doubtful(each.entry, now)]
    ended = set(doubtful) - await store.still_open(connection, doubtful)
    unstaged = [key for each in advances for key in planning.unstaged(each, staged)]
    there = await store.counted(connection, unstaged)
    standing = [planning.opened(each, staged, ended, there) for each in advances]
    commenced = [e.entry.version for e in advances if e.entry.version is not e.before.version]
    await versions.show(connection, commenced)
    fates = {key: fate for each in advances for key, fate in each.fates.items()}
    await versions.settle_fates(connection, fates)
    takeovers = [each.takeover for each in advances if each.takeover is not None]
    await versions.take_over(connection, takeovers)
    await store.save_states(connection, standing)
    in_force = (each.before.version for each in advances)
    known = [*in_force, *(version for each in advances for version in each.versions), *of]
    return Saved(owing.tickets(staged, owed, known), advances, standing)


async def _owed_again(
    connection: asyncpg.Connection, entries: Sequence[Entry], now: datetime
) -> tuple[list[Owed], list[NotOwed]]:
    """Of schedules that have just been resumed; hardly ever any."""
    noted = [RunKey(moment, entry.id) for entry in entries for moment in entry.again]
    taken_back = await store.taken_back(connection, noted)
    made = [owing.owed_again(entry, taken_back, now) for entry in entries if entry.again]
    return [run for runs, _ in made for run in runs], [skip for _, ss in made for skip in ss]
