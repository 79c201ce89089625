"""Replays: the next execution of dead runs, at most once for each dead letter."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

import asyncpg

from harebell.contract.ticket import Ticket
from harebell.dlq_inspector.model.results import replay_results
from harebell.dlq_inspector.store import dead_letters
from harebell.storage.runs.tickets import rebuild_tickets

Results: TypeAlias = dict[str, str]  # the result for each id of a command


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """The tenant of the dead letters, and the person who replays them."""

    tenant: str
    actor: str | None
    note: str | None
    pool: str | None = None  # replaces the pool of the runs
    trace: Mapping[str, str] | None = None  # the JSON of the `TraceOrigin` of the command


async def start_replays(
    connection: asyncpg.Connection, request: ReplayRequest, ids: Iterable[UUID]
) -> tuple[Results, list[Ticket]]:
    """Return the result for each dead letter, and the tickets to publish before the commit.

    A replayed run that no executor has claimed gets its ticket again.
    The commit of an earlier command may have been too late for the first ticket.
    """
    requested = list(ids)
    locked = await dead_letters.lock_dead_letters(connection, request.tenant, requested)
    replayable = [each for each in locked.values() if each.is_replayable]
    staged = await dead_letters.stage_replays(
        connection, request.tenant, replayable, pool=request.pool, trace=request.trace
    )
    await dead_letters.record_replays(
        connection, request.tenant, staged, actor=request.actor, note=request.note
    )
    to_publish = [each for each in locked.values() if each.id in staged or each.is_unstarted]
    runs = [each.run for each in to_publish if each.run is not None]
    return replay_results(requested, locked, staged), await rebuild_tickets(connection, runs)
