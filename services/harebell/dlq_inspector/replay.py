"""The one rule of replaying: a new series of the same run, once, or the letter stays open."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

import asyncpg

from harebell.contract.ticket import Ticket
from harebell.dlq_inspector.model.results import replay_results
from harebell.dlq_inspector.store import dead_letters
from harebell.storage.runs.tickets import rebuild_tickets

Results: TypeAlias = dict[str, str]  # of each letter that is named


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Whose letters, and who wants them replayed."""

    tenant: str
    actor: str | None
    note: str | None
    pool: str | None = None  # in place of that of their runs


async def start_replays(
    connection: asyncpg.Connection, order: ReplayRequest, ids: Iterable[UUID]
) -> tuple[Results, list[Ticket]]:
    """What becomes of each letter, and the tickets to publish before that is committed.

    A run replayed before that has not started gets its ticket again: an earlier command's commit
    may have been seen by nobody.
    """
    named = list(ids)
    held = await dead_letters.lock_dead_letters(connection, order.tenant, named)
    chosen = [letter for letter in held.values() if letter.is_replayable]
    begun = await dead_letters.stage_replays(connection, order.tenant, chosen, pool=order.pool)
    await dead_letters.record_replays(connection, begun, actor=order.actor, note=order.note)
    due = [letter.run for letter in held.values() if letter.id in begun or letter.unstarted]
    tickets = await rebuild_tickets(connection, [run for run in due if run is not None])
    return replay_results(named, held, begun), tickets
