"""Working at the desk: replays, drops and questions, in the order they come."""

from collections import Counter
from collections.abc import Awaitable
from datetime import datetime
from typing import TypeAlias

import asyncpg
import structlog

from harebell.contract.accepted_commands import AcceptedCommand, AcceptedCommands
from harebell.contract.command_base import CommandBase
from harebell.contract.commands import (
    DEAD_LETTER_COMMANDS,
    DeadLetterDiscard,
    DeadLetterEdit,
    DeadLetterImport,
    DeadLetterReplay,
    GroupArchive,
    GroupCommand,
    GroupMute,
    GroupReopen,
    ReplayJobCommand,
    ReplayJobStart,
)
from harebell.contract.dead_letter import GroupState
from harebell.contract.errors import InvalidInput, Rejected
from harebell.contract.message import parse, quoted
from harebell.contract.responses import (
    DeadLetterResponse,
    ErrorResponse,
    ReplayJobResponse,
    error_response,
)
from harebell.contract.types import Json
from harebell.dlq_inspector import metrics
from harebell.dlq_inspector.edit import edit_dead_letter
from harebell.dlq_inspector.import_letters import import_dead_letters
from harebell.dlq_inspector.model.results import ResultStatus, discard_results, group_results
from harebell.dlq_inspector.replay import ReplayRequest, Results, start_replays
from harebell.dlq_inspector.replay_worker import ReplayWorker
from harebell.dlq_inspector.store import dead_letters, groups
from harebell.messaging.publisher import Publisher
from harebell.messaging.ticket_batches import TicketHeader
from harebell.runtime import failpoint
from harebell.runtime.clock import Clock
from harebell.storage.engine import translate_db_errors
from harebell.storage.publishing_transaction import publishing_transaction

Answer: TypeAlias = DeadLetterResponse | ReplayJobResponse | ErrorResponse

log = structlog.get_logger()


class DeadLetterCommandHandler:
    """Commands that intake has checked. Each is one transaction, of one tenant's letters."""

    def __init__(
        self, pool: asyncpg.Pool, publisher: Publisher, clock: Clock, foreman: ReplayWorker
    ) -> None:
        self._pool = pool
        self._publisher = publisher
        self._clock = clock
        self._foreman = foreman

    async def apply(self, change: AcceptedCommands) -> list[Answer]:
        """An answer for each item, in order; what was done before stays done if it comes again."""
        return [await self._item(change, item) for item in change.items]

    async def _item(self, change: AcceptedCommands, item: AcceptedCommand) -> Answer:
        if item.rejection is not None:
            return item.rejection
        try:
            command = _command(change.verb, item.body)
        except Rejected as error:
            return error_response(error, within="" if change.single else f"[{item.index}]")
        return await self._done(change, item, command)

    async def _done(
        self, change: AcceptedCommands, item: AcceptedCommand, command: CommandBase
    ) -> Answer:
        work: Awaitable[Answer]
        match command:
            case DeadLetterReplay():
                work = self._replay(change, command)
            case DeadLetterDiscard():
                work = self._drop(change, command)
            case DeadLetterEdit():
                work = self._edit(change, command)
            case DeadLetterImport():
                work = self._import(change, command)
            case GroupCommand():
                work = self._change_groups(change, command)
            case ReplayJobStart():
                work = self._foreman.start(change, item, command)
            case ReplayJobCommand():
                work = self._foreman.change_state(change, command)
            case _:
                raise TypeError(f"{change.verb} is nobody's")
        return await work

    async def _replay(
        self, change: AcceptedCommands, command: DeadLetterReplay
    ) -> DeadLetterResponse:
        async with publishing_transaction(self._pool, self._publisher, self._clock) as authority:
            order = ReplayRequest(change.tenant, change.actor, command.note)
            results, tickets = await start_replays(authority.connection, order, command.ids)
            await authority.publish(map(TicketHeader.of, tickets))
            await failpoint.reach("dlq_inspector.before_commit")
        metrics.REPLAYED_RUNS.inc(_tell(change, command.note, results)[ResultStatus.REPLAYED])
        return DeadLetterResponse(results=results)

    async def _drop(
        self, change: AcceptedCommands, command: DeadLetterDiscard
    ) -> DeadLetterResponse:
        with translate_db_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                held = await dead_letters.lock_dead_letters(connection, change.tenant, command.ids)
                dropped = [id_ for id_, letter in held.items() if letter.is_open]
                await dead_letters.discard(
                    connection, dropped, actor=change.actor, note=command.note
                )
        results = discard_results(command.ids, held)
        _tell(change, command.note, results)
        return DeadLetterResponse(results=results)

    async def _edit(self, change: AcceptedCommands, command: DeadLetterEdit) -> DeadLetterResponse:
        with translate_db_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                results = await edit_dead_letter(connection, change, command)
        _tell(change, command.note, results)
        return DeadLetterResponse(results=results)

    async def _import(
        self, change: AcceptedCommands, command: DeadLetterImport
    ) -> DeadLetterResponse | ErrorResponse:
        try:
            with translate_db_errors():
                async with self._pool.acquire() as connection:
                    results = await import_dead_letters(connection, change, command)
        except Rejected as error:
            return error_response(error)
        _tell(change, command.note, results)
        return DeadLetterResponse(results=results)

    async def _change_groups(
        self, change: AcceptedCommands, command: GroupCommand
    ) -> DeadLetterResponse:
        state, until = _decided(command)
        with translate_db_errors():
            async with self._pool.acquire() as connection:
                changed = await groups.update_groups(
                    connection, change.tenant, command.groups,
                    actor=change.actor, note=command.note, state=state, until=until,
                )  # fmt: skip
        results = group_results(command.groups, changed, state)
        _tell(change, command.note, results)
        return DeadLetterResponse(results=results)


def _decided(command: GroupCommand) -> tuple[GroupState | None, datetime | None]:
    """The state that the groups come into, and until when; None leaves theirs."""
    match command:
        case GroupMute(until=until):
            return GroupState.MUTED, until
        case GroupArchive():
            return GroupState.ARCHIVED, None
        case GroupReopen():
            return GroupState.OPEN, None
        case _:
            return None, None


def _command(verb: str, body: Json) -> CommandBase:
    if verb not in DEAD_LETTER_COMMANDS:
        raise InvalidInput(f"{quoted(verb)} is no command to the desk", code="unknown_command")
    return parse(DEAD_LETTER_COMMANDS[verb], body)


def _tell(change: AcceptedCommands, note: str | None, results: Results) -> Counter[str]:
    counts = Counter(results.values())
    log.info(
        "desk command",
        verb=change.verb,
        tenant=change.tenant,
        actor=change.actor,
        note=note,
        results=results,
    )
    return counts
