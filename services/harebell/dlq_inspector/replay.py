"""Replays: the next execution of dead runs and commands, once for each dead letter."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

import asyncpg

from harebell.contract.ticket import Ticket
from harebell.dlq_inspector.model.dead_command import DeadCommand, command_of
from harebell.dlq_inspector.model.dead_letter import DeadLetterKind
from harebell.dlq_inspector.model.results import LockedDeadLetter, replay_results
from harebell.dlq_inspector.store import dead_letters
from harebell.storage.runs.replays import RequestedReplay, stage_replays
from harebell.storage.runs.staging import rebuild_tickets

Results: TypeAlias = dict[str, str]  # the result for each id of a command


@dataclass(frozen=True, slots=True, kw_only=True)
class Replays:
    """The result for each dead letter, and the messages to publish before the commit."""

    results: Results
    tickets: list[Ticket]
    commands: list[DeadCommand]


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
) -> Replays:
    """Stage the dead runs, find the dead commands and record both as replayed.

    A replayed run that no executor has claimed gets its ticket again.
    The commit of an earlier command may have been too late for the first ticket.
    """
    requested = list(ids)
    locked = await dead_letters.lock_dead_letters(connection, request.tenant, requested)
    replayable = [each for each in locked.values() if each.is_replayable]
    commands = await _dead_commands(connection, request.tenant, locked.values())
    dead_runs = [
        RequestedReplay(
            id=each.id,
            key=each.run,
            replay_number=each.replay_number,
            override=each.next_override(request.trace),
        )
        for each in replayable
        if each.run is not None and each.replay_number is not None
    ]
    staged = await stage_replays(connection, request.tenant, dead_runs, pool=request.pool)
    replayed = staged | commands.keys()
    await dead_letters.record_replays(
        connection, request.tenant, replayed, actor=request.actor, note=request.note
    )
    to_publish = [each for each in locked.values() if each.id in staged or each.is_unstarted]
    runs = [each.run for each in to_publish if each.run is not None]
    return Replays(
        results=replay_results(requested, locked, replayed),
        tickets=await rebuild_tickets(connection, runs),
        commands=list(commands.values()),
    )


async def _dead_commands(
    connection: asyncpg.Connection, tenant: str, locked: Iterable[LockedDeadLetter]
) -> dict[UUID, DeadCommand]:
    """Return the commands of the open messages that were commands."""
    is_message = DeadLetterKind.MESSAGE
    ids = [each.id for each in locked if each.is_open and each.kind is is_message]
    if not ids:
        return {}
    messages = await dead_letters.find_messages(connection, tenant, ids)
    commands = {id_: command_of(payload, body) for id_, payload, body in messages}
    return {id_: command for id_, command in commands.items() if command is not None}
