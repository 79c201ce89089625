"""Commands: the handler of each command about dead letters, failure groups and replay jobs."""

from datetime import datetime
from typing import TypeAlias, assert_never

import asyncpg
import structlog

from harebell.contract.accepted_commands import AcceptedCommand, AcceptedCommands
from harebell.contract.amqp_names import COMMANDS
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
from harebell.dlq_inspector.model.dead_command import DeadCommand
from harebell.dlq_inspector.model.results import ResultStatus, discard_results, group_results
from harebell.dlq_inspector.replay import ReplayRequest, Replays, Results, start_replays
from harebell.dlq_inspector.replay_worker import ReplayWorker
from harebell.dlq_inspector.store import dead_letters, groups
from harebell.ledger.publishing_transaction import publishing_transaction
from harebell.messaging import run_log
from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.messaging.sender_check import SENDER
from harebell.messaging.ticket_batches import TicketHeader
from harebell.runtime import failpoint
from harebell.runtime.clock import Clock
from harebell.storage.engine import translate_db_errors

InspectorCommand: TypeAlias = (
    DeadLetterReplay
    | DeadLetterDiscard
    | DeadLetterEdit
    | DeadLetterImport
    | GroupCommand
    | ReplayJobStart
    | ReplayJobCommand
)
InspectorResponse: TypeAlias = DeadLetterResponse | ReplayJobResponse | ErrorResponse

log = structlog.get_logger()


class DeadLetterCommandHandler:
    """The handler of commands that intake has checked.

    Each command is one transaction and changes rows of one tenant.
    """

    def __init__(
        self,
        *,
        pool: asyncpg.Pool,
        publisher: Publisher,
        clock: Clock,
        replay_worker: ReplayWorker,
    ) -> None:
        self._pool = pool
        self._publisher = publisher
        self._clock = clock
        self._replay_worker = replay_worker

    async def apply(self, commands: AcceptedCommands) -> list[InspectorResponse]:
        """Apply the items in order and return their responses. A repeat changes nothing."""
        return [await self._apply_item(commands, item) for item in commands.items]

    async def _apply_item(
        self, commands: AcceptedCommands, item: AcceptedCommand
    ) -> InspectorResponse:
        if item.rejection is not None:
            return item.rejection
        try:
            command = _parse_command(commands.verb, item.body)
        except Rejected as error:
            return error_response(error, within="" if commands.single else f"[{item.index}]")
        return await self._apply_command(commands, item, command)

    async def _apply_command(
        self, commands: AcceptedCommands, item: AcceptedCommand, command: InspectorCommand
    ) -> InspectorResponse:
        response: InspectorResponse
        match command:
            case DeadLetterReplay():
                response = await self._replay(commands, command)
            case DeadLetterDiscard():
                response = await self._discard(commands, command)
            case DeadLetterEdit():
                response = await self._edit(commands, command)
            case DeadLetterImport():
                response = await self._import(commands, command)
            case GroupCommand():
                response = await self._update_groups(commands, command)
            case ReplayJobStart():
                response = await self._replay_worker.start(commands, item, command)
            case ReplayJobCommand():
                response = await self._replay_worker.change_state(commands, command)
            case _:
                assert_never(command)
        return response

    async def _replay(
        self, commands: AcceptedCommands, command: DeadLetterReplay
    ) -> DeadLetterResponse:
        request = ReplayRequest(
            tenant=commands.tenant, actor=commands.actor, note=command.note, trace=commands.trace
        )
        async with publishing_transaction(self._pool, self._publisher, self._clock) as transaction:
            replays = await start_replays(transaction.connection, request, command.ids)
            headers = list(map(TicketHeader.of, replays.tickets))
            await transaction.publish(headers, [_outgoing(each) for each in replays.commands])
            await failpoint.reach("dlq_inspector.before_commit")
        metrics.REPLAYED_RUNS.inc(_count_replayed_runs(replays))
        run_log.log_staged(headers)
        return _response(commands, command.note, replays.results)

    async def _discard(
        self, commands: AcceptedCommands, command: DeadLetterDiscard
    ) -> DeadLetterResponse:
        with translate_db_errors():
            async with self._pool.acquire() as connection, connection.transaction():
                locked = await dead_letters.lock_dead_letters(
                    connection, commands.tenant, command.ids
                )
                open_ids = [id_ for id_, dead_letter in locked.items() if dead_letter.is_open]
                await dead_letters.discard(
                    connection, commands.tenant, open_ids, actor=commands.actor, note=command.note
                )
        return _response(commands, command.note, discard_results(command.ids, locked))

    async def _edit(
        self, commands: AcceptedCommands, command: DeadLetterEdit
    ) -> DeadLetterResponse | ErrorResponse:
        try:
            with translate_db_errors():
                async with self._pool.acquire() as connection, connection.transaction():
                    results = await edit_dead_letter(connection, commands, command)
        except Rejected as error:
            return error_response(error)
        return _response(commands, command.note, results)

    async def _import(
        self, commands: AcceptedCommands, command: DeadLetterImport
    ) -> DeadLetterResponse | ErrorResponse:
        try:
            with translate_db_errors():
                async with self._pool.acquire() as connection:
                    results = await import_dead_letters(
                        connection, commands, command, now=self._clock.now()
                    )
        except Rejected as error:
            return error_response(error)
        return _response(commands, command.note, results)

    async def _update_groups(
        self, commands: AcceptedCommands, command: GroupCommand
    ) -> DeadLetterResponse:
        state, until = _requested_state(command)
        with translate_db_errors():
            async with self._pool.acquire() as connection:
                updated = await groups.update_groups(
                    connection,
                    commands.tenant,
                    command.groups,
                    actor=commands.actor,
                    note=command.note,
                    state=state,
                    until=until,
                )
        return _response(commands, command.note, group_results(command.groups, updated, state))


def _parse_command(verb: str, body: Json) -> InspectorCommand:
    if verb not in DEAD_LETTER_COMMANDS:
        names = ", ".join(DEAD_LETTER_COMMANDS)
        reason = f"The command must be one of {names}, not {quoted(verb)}."
        raise InvalidInput(reason, code="unknown_command")
    command = parse(DEAD_LETTER_COMMANDS[verb], body)
    assert isinstance(command, InspectorCommand)  # noqa: S101  # for the type checker
    return command


def _outgoing(command: DeadCommand) -> OutgoingMessage:
    return OutgoingMessage(
        exchange=COMMANDS,
        routing_key=command.routing_key,
        body=command.body,
        type=command.type,
        message_id=command.message_id,
        headers={} if command.sender is None else {SENDER: command.sender},
    )


def _count_replayed_runs(replays: Replays) -> int:
    replayed = list(replays.results.values()).count(ResultStatus.REPLAYED)
    return replayed - len(replays.commands)


def _requested_state(command: GroupCommand) -> tuple[GroupState | None, datetime | None]:
    """Return the new state of the groups and the end of a mute. None keeps the present state."""
    match command:
        case GroupMute(until=until):
            return GroupState.MUTED, until
        case GroupArchive():
            return GroupState.ARCHIVED, None
        case GroupReopen():
            return GroupState.OPEN, None
        case _:
            return None, None


def _response(commands: AcceptedCommands, note: str | None, results: Results) -> DeadLetterResponse:
    log.info(
        "dead letter command applied",
        verb=commands.verb,
        tenant=commands.tenant,
        actor=commands.actor,
        note=note,
        results=results,
    )
    return DeadLetterResponse(results=results)
