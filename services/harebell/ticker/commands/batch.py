"""Batches of commands: deliveries of `harebell.changes`, parsed for one transaction."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from pydantic import TypeAdapter

from harebell.contract.accepted_commands import AcceptedCommand, AcceptedCommands
from harebell.contract.amqp_names import CHANGES
from harebell.contract.commands import SCHEDULE_COMMANDS, RunCancel, RunResolve
from harebell.contract.errors import InvalidInput, Rejected
from harebell.contract.ids import RunKey
from harebell.contract.json_codec import decode_model, encode
from harebell.contract.message import parse
from harebell.contract.responses import ErrorResponse, error_response
from harebell.messaging.acknowledge import DONE, DeadLettered, Delivery, Outcome
from harebell.messaging.sender_check import is_foreign
from harebell.ticker.commands.handlers import CommandContext, Response
from harebell.ticker.store.command_results import CommandKey

MAX_COMMANDS: Final = 500  # in one transaction
PARSE_CHUNK: Final = 32  # commands parsed before the loop returns to a waiting transaction

_ACCEPTED_COMMANDS: Final = TypeAdapter(AcceptedCommands)


@dataclass(slots=True, kw_only=True)
class BatchItem:
    """One command with its response.

    An item has a response from the start if intake or the parser rejected the command.
    A repeated command has no response, but the body of the first response.
    """

    message: AcceptedCommands
    accepted: AcceptedCommand
    context: CommandContext | None = None
    schedule_ids: Sequence[UUID] = ()  # of a bulk operation
    response: Response | ErrorResponse | None = None
    response_body: bytes = b""

    @property
    def key(self) -> CommandKey | None:
        request_id = self.accepted.request_id
        return (
            None if request_id is None else (self.message.tenant, request_id, self.accepted.index)
        )

    def set_response(self, response: Response | ErrorResponse) -> None:
        self.response = response
        self.response_body = encode(response)

    def set_repeated(self, body: bytes) -> None:
        self.response = None
        self.response_body = body

    def reject(self, error: Rejected) -> None:
        within = "" if self.message.single else f"[{self.accepted.index}]"
        self.set_response(error_response(error, within=within))


@dataclass(slots=True)
class CommandBatch:
    """The commands of one transaction, by message, and one outcome for each delivery."""

    outcomes: list[Outcome] = field(default_factory=list)
    messages: list[tuple[AcceptedCommands, list[BatchItem]]] = field(default_factory=list)

    @property
    def items(self) -> list[BatchItem]:
        return [item for _, items in self.messages for item in items]

    @property
    def keys(self) -> list[CommandKey]:
        return [key for item in self.items if (key := item.key) is not None]

    @property
    def responses(self) -> dict[CommandKey, bytes]:
        """Return the response of each command that is not a repeat, by its key."""
        return {
            key: item.response_body
            for item in self.items
            if item.response is not None and (key := item.key) is not None
        }

    def without(self, repeated: Collection[CommandKey]) -> list[BatchItem]:
        return [item for item in self.items if item.key not in repeated]


async def read_batches(deliveries: Sequence[Delivery]) -> AsyncIterator[CommandBatch]:
    """Yield batches in the order of the deliveries.

    A delivery that is not a message of accepted commands becomes a dead letter.
    A delivery that intake has not published is refused.
    """
    batch, size = CommandBatch(), 0
    for delivery in deliveries:
        if is_foreign(delivery, CHANGES):
            batch.outcomes.append(DONE)
            continue
        try:
            message = decode_model(_ACCEPTED_COMMANDS, delivery.trusted_body)
        except InvalidInput as error:
            batch.outcomes.append(DeadLettered(error.code, error.reason))
            continue
        if size and size + len(message.items) > MAX_COMMANDS:
            yield batch
            batch, size = CommandBatch(), 0
        batch.messages.append((message, await _items(message)))
        batch.outcomes.append(DONE)
        size += len(message.items)
    yield batch


async def _items(message: AcceptedCommands) -> list[BatchItem]:
    items: list[BatchItem] = []
    for accepted in message.items:
        items.append(_item(message, accepted))
        if len(items) % PARSE_CHUNK == 0:
            await asyncio.sleep(0)
    return items


def _item(message: AcceptedCommands, accepted: AcceptedCommand) -> BatchItem:
    item = BatchItem(message=message, accepted=accepted)
    if accepted.rejection is not None:
        item.set_response(accepted.rejection)
        return item
    try:
        item.context = _context(message, accepted)
    except Rejected as error:
        item.reject(error)
    return item


def _context(message: AcceptedCommands, accepted: AcceptedCommand) -> CommandContext:
    model = SCHEDULE_COMMANDS.get(message.verb)
    if model is None:
        raise Rejected(
            f"The command must be a schedule or run command, not {message.verb!r}.",
            code="unknown_command",
        )
    command = parse(model, accepted.body)
    schedule_id = accepted.schedule_id
    if isinstance(command, RunCancel | RunResolve):
        schedule_id = RunKey.parse(command.run_id).schedule_id
    if schedule_id is None and not command.is_bulk:
        raise InvalidInput(
            "The accepted command must have a schedule id, because it is no bulk operation.",
            field="schedule_id",
        )
    return CommandContext(
        tenant=message.tenant,
        command=command,
        schedule_id=schedule_id,
        accepted_at=message.accepted_at,
        actor=message.actor,
    )


def response_body(message: AcceptedCommands, items: Sequence[BatchItem]) -> bytes:
    """Return the body of the reply: an object for a single command, and an array otherwise."""
    if message.single:
        return items[0].response_body
    return b"[" + b",".join(item.response_body for item in items) + b"]"
