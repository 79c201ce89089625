"""Batches of commands: deliveries of `harebell.changes`, parsed for one transaction."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from harebell.contract.accepted_commands import (
    AcceptedCommand,
    AcceptedCommands,
    DelayedDelivery,
)
from harebell.contract.amqp_names import CHANGES
from harebell.contract.calendar import CALENDAR_COMMANDS
from harebell.contract.commands import SCHEDULE_COMMANDS, RunCancel, RunResolve, ScheduleBackfill
from harebell.contract.errors import InvalidInput, QuotaExceeded, Rejected
from harebell.contract.ids import RunKey
from harebell.contract.json_codec import encode
from harebell.contract.message import parse
from harebell.contract.responses import ErrorResponse, error_response
from harebell.messaging.accepted_messages import read_messages
from harebell.messaging.acknowledge import DONE, DeadLettered, Delivery, Outcome
from harebell.messaging.sender_check import is_foreign
from harebell.runtime.clock import monotonic
from harebell.ticker.commands.handlers import CommandContext, Response
from harebell.ticker.store.command_results import CommandKey

BACKFILL: Final = "schedule.backfill"
PUT: Final = "schedule.put"
_COMMANDS: Final = {**SCHEDULE_COMMANDS, **CALENDAR_COMMANDS}
MAX_COMMANDS: Final = 500  # in one transaction
MAX_PART: Final = 100  # commands of one transaction, or puts while several tenants send commands
SHARED_TIME: Final = 10.0  # seconds after a change of the tenant, during which parts are small
MAX_BACKFILLS: Final = 10  # of one transaction, because each may create thousands of runs
PARSE_CHUNK: Final = 32  # commands parsed before the loop returns to a waiting transaction


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
    def backfill(self) -> ScheduleBackfill | None:
        command = None if self.context is None else self.context.command
        return command if isinstance(command, ScheduleBackfill) else None

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
    """The commands of one transaction, by message, and the outcomes of finished deliveries.

    A delivery is finished in the batch with its last command or in a later batch.
    `replies` contains all items of each message whose last item is in this batch.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    messages: list[tuple[AcceptedCommands, list[BatchItem]]] = field(default_factory=list)
    replies: list[tuple[AcceptedCommands, list[BatchItem]]] = field(default_factory=list)

    def add(self, message: AcceptedCommands, items: list[BatchItem]) -> None:
        """Add a whole message."""
        self.messages.append((message, items))
        self.replies.append((message, items))

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


@dataclass(slots=True)
class PartSize:
    """The maximum number of commands of one transaction, which is small among several tenants."""

    _tenant: str | None = None
    _shared_until: float = 0.0  # monotonic seconds

    def note(self, tenant: str) -> None:
        """Record a delivery of a tenant."""
        if self._tenant not in (None, tenant):
            self._shared_until = monotonic() + SHARED_TIME
        self._tenant = tenant

    def limit(self, verb: str) -> int:
        """Return the maximum for a verb. A put needs less time than other commands."""
        if verb == BACKFILL:
            return MAX_BACKFILLS
        is_shared = monotonic() < self._shared_until
        return MAX_COMMANDS if verb == PUT and not is_shared else MAX_PART


async def read_batches(
    deliveries: Sequence[Delivery], part_size: PartSize
) -> AsyncIterator[CommandBatch]:
    """Yield batches in the order of the deliveries.

    The times of backfills are found before their transaction, so it has no other command before.
    """
    batch, size, unpaused = CommandBatch(), 0, 0
    for delivery in deliveries:
        messages = messages_or_outcome(delivery)
        if not isinstance(messages, list):
            batch.outcomes.append(messages)
            continue
        for message in messages:
            unpaused += len(message.items)
            if unpaused > PARSE_CHUNK:
                await asyncio.sleep(0)
                unpaused = len(message.items)
            is_large = len(message.items) > part_size.limit(message.verb)
            is_split = message.verb == BACKFILL or is_large
            if size and (is_split or size + len(message.items) > MAX_COMMANDS):
                yield batch
                batch, size = CommandBatch(), 0
            if is_split:
                for part in _parts(message, await _items(message), part_size):
                    yield part
                continue
            batch.add(message, await _items(message))
            size += len(message.items)
        batch.outcomes.append(DONE)
    yield batch


def messages_or_outcome(delivery: Delivery) -> list[AcceptedCommands] | Outcome:
    """Return the messages of a delivery, or its outcome if no command of it can be applied.

    A delivery that contains no accepted commands becomes a dead letter.
    A delivery that intake has not published is refused.
    """
    if is_foreign(delivery, CHANGES):
        return DONE
    try:
        return read_messages(delivery)
    except InvalidInput as error:
        return DeadLettered(error.code, error.reason)


def _parts(
    message: AcceptedCommands, items: list[BatchItem], part_size: PartSize
) -> Iterator[CommandBatch]:
    """Yield the message in parts, between which other tenants have a turn.

    After a crash between two parts, the whole message is repeated, and the commands of the first
    parts get their first responses.
    """
    start = 0
    while start < len(items):
        count = part_size.limit(message.verb)
        part = CommandBatch(messages=[(message, items[start : start + count])])
        start += count
        if start >= len(items):
            part.replies = [(message, items)]
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
    model = _COMMANDS.get(message.verb)
    if model is None:
        raise Rejected(
            f"The command must be a schedule, run or calendar command, not {message.verb!r}.",
            code="unknown_command",
        )
    command = parse(model, accepted.body)
    schedule_id = accepted.schedule_id
    if isinstance(command, RunCancel | RunResolve):
        schedule_id = RunKey.parse(command.run_id).schedule_id
    names_schedule = message.verb not in CALENDAR_COMMANDS and not command.is_bulk
    if schedule_id is None and names_schedule:
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
        trace=message.trace,
        is_redelivered=message.delayed is DelayedDelivery.REPEATED,
    )


def response_body(message: AcceptedCommands, items: Sequence[BatchItem]) -> bytes:
    """Return the body of the reply: an object for a single command, and an array otherwise."""
    if message.single:
        return items[0].response_body
    return b"[" + b",".join(item.response_body for item in items) + b"]"
