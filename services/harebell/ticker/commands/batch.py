"""Deliveries as batches of commands, each on its way from asked to answered."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import TypeAdapter

from harebell.contract.accepted_commands import AcceptedCommand, AcceptedCommands
from harebell.contract.commands import SCHEDULE_COMMANDS, RunCancel, RunResolve
from harebell.contract.errors import InvalidInput, Rejected
from harebell.contract.ids import RunKey
from harebell.contract.json_codec import decode_model, encode
from harebell.contract.message import parse
from harebell.contract.responses import ErrorResponse, error_response
from harebell.messaging.acknowledge import DONE, DeadLettered, Delivery, Outcome
from harebell.ticker.commands.bulk import is_bulk
from harebell.ticker.commands.handlers import CommandContext, Response
from harebell.ticker.store.command_results import CommandKey

MAX_COMMANDS: Final = 500  # applied in one transaction
PARSE_CHUNK: Final = 32  # commands read before a transaction that waits for the database goes on

_CHANGE: Final = TypeAdapter(AcceptedCommands)


@dataclass(slots=True)
class BatchItem:
    """One command: refused before it came here, or asked; in the end answered."""

    change: AcceptedCommands
    source: AcceptedCommand
    context: CommandContext | None = None
    response: Response | ErrorResponse | None = None  # None: a repeat, answered from the record
    response_body: bytes = b""

    @property
    def key(self) -> CommandKey | None:
        request = self.source.request_id
        return None if request is None else (self.change.tenant, request, self.source.index)

    def set_response(self, told: Response | ErrorResponse) -> None:
        self.response = told
        self.response_body = encode(told)

    def reject(self, error: Rejected) -> None:
        self.set_response(
            error_response(error, within="" if self.change.single else f"[{self.source.index}]")
        )


@dataclass(slots=True)
class CommandBatch:
    """What one transaction applies; one outcome a delivery."""

    outcomes: list[Outcome] = field(default_factory=list)
    changes: list[tuple[AcceptedCommands, list[BatchItem]]] = field(default_factory=list)

    @property
    def items(self) -> list[BatchItem]:
        return [item for _, items in self.changes for item in items]


async def read_batches(deliveries: Sequence[Delivery]) -> AsyncIterator[CommandBatch]:
    """In order; a delivery that is not a change becomes a dead letter and stops nothing."""
    batch, size = CommandBatch(), 0
    for delivery in deliveries:
        try:
            change = decode_model(_CHANGE, delivery.trusted_body)
        except InvalidInput as error:
            batch.outcomes.append(DeadLettered(error.code, error.reason))
            continue
        if size and size + len(change.items) > MAX_COMMANDS:
            yield batch
            batch, size = CommandBatch(), 0
        batch.changes.append((change, await _items(change)))
        batch.outcomes.append(DONE)
        size += len(change.items)
    yield batch


async def _items(change: AcceptedCommands) -> list[BatchItem]:
    items: list[BatchItem] = []
    for source in change.items:
        items.append(_item(change, source))
        if len(items) % PARSE_CHUNK == 0:
            await asyncio.sleep(0)
    return items


def _item(change: AcceptedCommands, source: AcceptedCommand) -> BatchItem:
    item = BatchItem(change, source)
    if source.rejection is not None:
        item.set_response(source.rejection)
        return item
    try:
        item.context = _asked(change, source)
    except Rejected as error:
        item.reject(error)
    return item


def _asked(change: AcceptedCommands, source: AcceptedCommand) -> CommandContext:
    model = SCHEDULE_COMMANDS.get(change.verb)
    if model is None:
        raise Rejected(f"{change.verb!r} is not a schedule's", code="unknown_command")
    command = parse(model, source.body)
    schedule = source.schedule_id
    if isinstance(command, RunCancel | RunResolve):
        schedule = RunKey.parse(command.run_id).schedule_id
    if schedule is None and not is_bulk(command):
        raise InvalidInput("is missing from the change", field="schedule_id")
    return CommandContext(change.tenant, command, schedule, change.accepted_at, change.actor)


def response_body(change: AcceptedCommands, items: Sequence[BatchItem]) -> bytes:
    """Object in, object out; array in, array out."""
    if change.single:
        return items[0].response_body
    return b"[" + b",".join(item.response_body for item in items) + b"]"
