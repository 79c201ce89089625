"""Deliveries become batches of commands: in order, in portions, and a bad one stops no other."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from aio_pika import IncomingMessage
from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic
from pamqp.header import ContentHeader
from tests.fakes.tickets import NINE

from harebell.contract.accepted_commands import AcceptedCommand, AcceptedCommands
from harebell.contract.amqp_names import message_type
from harebell.contract.errors import BrokerUnavailable
from harebell.contract.json_codec import encode
from harebell.messaging.acknowledge import DONE, DeadLettered, Delivery
from harebell.ticker.commands.apply import AppliedBatch, CommandApplier
from harebell.ticker.commands.batch import MAX_COMMANDS, PARSE_CHUNK, CommandBatch, read_batches
from harebell.ticker.model.unit_of_work import UnitOfWork
from harebell.ticker.store.save import SaveResult


def delivery(body: bytes) -> Delivery:
    properties = Basic.Properties(message_type=message_type("change"))
    delivered = DeliveredMessage(
        delivery=Basic.Deliver("tag", 1, exchange="", routing_key="harebell.ticker"),
        header=ContentHeader(properties=properties),
        body=body,
        channel=None,  # type: ignore[arg-type]  # nothing is acknowledged here
    )
    return Delivery(IncomingMessage(delivered), "harebell.ticker")


def put(number: int) -> AcceptedCommand:
    body: dict[str, Any] = {"when": {"every": "1h"}, "target": {"task": {"name": "acme.report"}}}
    return AcceptedCommand(index=number, request_id="one", schedule_id=UUID(int=number), body=body)


def change(number: int) -> Delivery:
    items = [put(each) for each in range(number)]
    made = AcceptedCommands(
        tenant="acme", verb="schedule.put", accepted_at=NINE, single=False, items=items
    )
    return delivery(encode(made))


async def read(*deliveries: Delivery) -> list[CommandBatch]:
    return [batch async for batch in read_batches(deliveries)]


async def test_changes_are_together_up_to_so_many_commands() -> None:
    most = MAX_COMMANDS // 2

    first, second = await read(change(most), change(most), change(1))

    assert [len(batch.items) for batch in (first, second)] == [2 * most, 1]


async def test_what_is_no_change_is_a_dead_letter_in_its_place() -> None:
    (batch,) = await read(change(1), delivery(b"{}"), change(1))

    before, dead, after = batch.outcomes
    assert (before, after) == (DONE, DONE)
    assert isinstance(dead, DeadLettered)
    assert len(batch.items) == 2


class Traced(CommandApplier):
    """Notes what it does; to write takes a while, and the first batch cannot be told."""

    def __init__(self) -> None:
        self.done: list[str] = []

    async def _apply(self, batch: CommandBatch | None) -> AppliedBatch | None:
        if batch is None or not batch.changes:
            return None
        number = len(self.done)
        self.done.append(f"writes {number}")
        await asyncio.sleep(0.05)
        self.done.append(f"has written {number}")
        return AppliedBatch(batch, UnitOfWork(), SaveResult([], [], []), NINE)

    async def _tell(self, applied: AppliedBatch | None) -> None:
        if applied is not None:
            self.done.append("tells")
            raise BrokerUnavailable("it is away")


async def test_when_a_batch_cannot_be_told_nothing_goes_on_behind_what_is_tried_again() -> None:
    changes = Traced()
    before = asyncio.all_tasks()

    with pytest.raises(BrokerUnavailable):
        await changes.handle([change(MAX_COMMANDS) for _ in range(3)])

    assert changes.done == ["writes 0", "has written 0", "writes 2", "tells", "has written 2"]
    assert asyncio.all_tasks() == before


async def test_while_many_commands_are_read_others_have_their_turns() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await read(change(MAX_COMMANDS))
    task.cancel()

    assert turns >= MAX_COMMANDS // PARSE_CHUNK
