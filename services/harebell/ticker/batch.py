"""Deliveries as batches of commands, each on its way from asked to answered."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import TypeAdapter

from harebell.contract.answers import Refusal, refusal
from harebell.contract.changes import Change, ChangeItem
from harebell.contract.codec import encode, read
from harebell.contract.commands import SCHEDULE_COMMANDS, RunCancel, RunResolve
from harebell.contract.errors import Malformed, Rejected
from harebell.contract.identity import RunKey
from harebell.contract.message import parse
from harebell.kernel.amqp.consume import DONE, DeadLetter, Delivery, Outcome
from harebell.ticker.core import Answer, Asked
from harebell.ticker.core.selecting import is_selecting
from harebell.ticker.store import CommandKey

MAX_COMMANDS: Final = 500  # applied in one transaction
AT_A_TIME: Final = 32  # commands read before a transaction that waits for the database goes on

_CHANGE: Final = TypeAdapter(Change)


@dataclass(slots=True)
class Item:
    """One command: refused before it came here, or asked; in the end answered."""

    change: Change
    source: ChangeItem
    asked: Asked | None = None
    told: Answer | Refusal | None = None  # None: a repeat, answered from the record
    answer: bytes = b""

    @property
    def key(self) -> CommandKey | None:
        request = self.source.request_id
        return None if request is None else (self.change.tenant, request, self.source.index)

    def settle(self, told: Answer | Refusal) -> None:
        self.told = told
        self.answer = encode(told)

    def refuse(self, error: Rejected) -> None:
        self.settle(refusal(error, within="" if self.change.single else f"[{self.source.index}]"))


@dataclass(slots=True)
class Batch:
    """What one transaction applies; one outcome a delivery."""

    outcomes: list[Outcome] = field(default_factory=list)
    changes: list[tuple[Change, list[Item]]] = field(default_factory=list)

    @property
    def items(self) -> list[Item]:
        return [item for _, items in self.changes for item in items]


async def batches(deliveries: Sequence[Delivery]) -> AsyncIterator[Batch]:
    """In order; a delivery that is not a change becomes a dead letter and stops nothing."""
    batch, size = Batch(), 0
    for delivery in deliveries:
        try:
            change = read(_CHANGE, delivery.own_body)
        except Malformed as error:
            batch.outcomes.append(DeadLetter(error.code, error.reason))
            continue
        if size and size + len(change.items) > MAX_COMMANDS:
            yield batch
            batch, size = Batch(), 0
        batch.changes.append((change, await _items(change)))
        batch.outcomes.append(DONE)
        size += len(change.items)
    yield batch


async def _items(change: Change) -> list[Item]:
    items: list[Item] = []
    for source in change.items:
        items.append(_item(change, source))
        if len(items) % AT_A_TIME == 0:
            await asyncio.sleep(0)
    return items


def _item(change: Change, source: ChangeItem) -> Item:
    item = Item(change, source)
    if source.refusal is not None:
        item.settle(source.refusal)
        return item
    try:
        item.asked = _asked(change, source)
    except Rejected as error:
        item.refuse(error)
    return item


def _asked(change: Change, source: ChangeItem) -> Asked:
    model = SCHEDULE_COMMANDS.get(change.verb)
    if model is None:
        raise Rejected(f"{change.verb!r} is not a schedule's", code="unknown_command")
    command = parse(model, source.body)
    schedule = source.schedule_id
    if isinstance(command, RunCancel | RunResolve):
        schedule = RunKey.parse(command.run_id).schedule_id
    if schedule is None and not is_selecting(command):
        raise Malformed("is missing from the change", field="schedule_id")
    return Asked(change.tenant, command, schedule, change.accepted_at, change.actor)


def reply_body(change: Change, items: Sequence[Item]) -> bytes:
    """Object in, object out; array in, array out."""
    if change.single:
        return items[0].answer
    return b"[" + b",".join(item.answer for item in items) + b"]"
