"""Batches of commands: deliveries of `harebell.changes`, parsed for one transaction."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from pydantic import TypeAdapter

from harebell.contract.accepted_commands import AcceptedCommand, AcceptedCommands
from harebell.contract.amqp_names import CHANGES
from harebell.contract.commands import SCHEDULE_COMMANDS, RunCancel, RunResolve
from harebell.contract.errors import InvalidInput, QuotaExceeded, Rejected
from harebell.contract.ids import RunKey
from harebell.contract.json_codec import decode_model, encode
from harebell.contract.message import parse
from harebell.contract.responses import ErrorResponse, error_response
from harebell.messaging.acknowledge import DONE, DeadLettered, Delivery, Outcome
from harebell.messaging.credits import tenant_of
from harebell.messaging.sender_check import is_foreign
from harebell.ticker.commands.handlers import CommandContext, Response
from harebell.ticker.store.command_results import CommandKey

MAX_COMMANDS: Final = 500  # in one transaction
MAX_PART: Final = 100  # commands of one transaction, if other tenants wait for the same ticker
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

    @property
    def is_beyond_quota(self) -> bool:
        response = self.response
        return isinstance(response, ErrorResponse) and response.error.code == QuotaExceeded.code

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
    """The commands of one transaction, by message, and one outcome for each delivery.

    A batch with a part of a large message contains only this part. The batch with the last part
    has all items of the message in `whole`, and the outcome of the delivery.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    messages: list[tuple[AcceptedCommands, list[BatchItem]]] = field(default_factory=list)
    whole: list[BatchItem] | None = None

    @property
    def replies(self) -> list[tuple[AcceptedCommands, list[BatchItem]]]:
        """Return the messages whose last item is in this batch, with all their items."""
        if not self.outcomes:
            return []
        if self.whole is None:
            return self.messages
        return [(message, self.whole) for message, _ in self.messages]

    @property
    def items(self) -> list[BatchItem]:
        return [item for _, items in self.messages for item in items]

    @property
    def keys(self) -> list[CommandKey]:
        return [key for item in self.items if (key := item.key) is not None]

    @property
    def responses(self) -> dict[CommandKey, bytes]:
        """Return the response of each command that is not a repeat, by its key.

        A later repeat of a command beyond a quota may succeed, so its error is not among them.
        """
        return {
            key: item.response_body
            for item in self.items
            if item.response is not None
            and (key := item.key) is not None
            and not item.is_beyond_quota
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
        is_split = bool(tenant_of(delivery)) and len(message.items) > MAX_PART
        if size and (is_split or size + len(message.items) > MAX_COMMANDS):
            yield batch
            batch, size = CommandBatch(), 0
        if is_split:
            for part in _parts(message, await _items(message)):
                yield part
            continue
        batch.messages.append((message, await _items(message)))
        batch.outcomes.append(DONE)
        size += len(message.items)
    yield batch


def _parts(message: AcceptedCommands, items: list[BatchItem]) -> Iterator[CommandBatch]:
    """Yield the message in parts, so that the loop returns to other tenants between them.

    After a crash between two parts, the whole message is repeated, and the commands of the first
    parts get their first responses.
    """
    for start in range(0, len(items), MAX_PART):
        part = CommandBatch(messages=[(message, items[start : start + MAX_PART])])
        if start + MAX_PART >= len(items):
            part.outcomes, part.whole = [DONE], items
        yield part


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
