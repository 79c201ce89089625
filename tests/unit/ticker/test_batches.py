"""Batches of commands from deliveries, in order and in chunks."""

import asyncio
from typing import Any
from uuid import UUID

import pytest
from tests.fakes.tickets import NINE

from harebell.contract.accepted_commands import AcceptedCommand, AcceptedCommands
from harebell.contract.amqp_names import CHANGES, CHANGES_SCHEDULE, message_type
from harebell.contract.errors import BrokerUnavailable
from harebell.contract.json_codec import encode, encode_all
from harebell.messaging.accepted_messages import split_messages
from harebell.messaging.acknowledge import DONE, DeadLettered, Delivery
from harebell.messaging.received_message import ReceivedMessage
from harebell.ticker.commands.apply import AppliedBatch, CommandApplier
from harebell.ticker.commands.batch import (
    MAX_COMMANDS,
    PARSE_CHUNK,
    CommandBatch,
    PartSize,
    messages_or_outcome,
    read_batches,
)
from harebell.ticker.model.unit_of_work import UnitOfWork
from harebell.ticker.plan_writer import SaveResult


def delivery(body: bytes, type_: str = "accepted_commands", exchange: str = CHANGES) -> Delivery:
    message = ReceivedMessage(
        body=body,
        exchange=exchange,
        routing_key=CHANGES_SCHEDULE,
        type=message_type(type_),
        message_id="m-1",
    )
    return Delivery(message, "harebell.ticker")


def put(number: int) -> AcceptedCommand:
    body: dict[str, Any] = {"when": {"every": "1h"}, "target": {"task": {"name": "acme.report"}}}
    return AcceptedCommand(index=number, request_id="one", schedule_id=UUID(int=number), body=body)


def message(count: int) -> AcceptedCommands:
    items = [put(each) for each in range(count)]
    return AcceptedCommands(
        tenant="acme", verb="schedule.put", accepted_at=NINE, single=False, items=items
    )


def commands(count: int) -> Delivery:
    return delivery(encode(message(count)))


def batch_of(*counts: int) -> Delivery:
    return delivery(encode_all(map(message, counts)), "accepted_commands.batch")


@pytest.mark.requirement("S59")
def test_delivery_of_another_exchange_or_without_commands_has_its_outcome() -> None:
    """Commands and reports have this check in common."""
    accepted = message(1)
    foreign = delivery(encode(accepted), exchange="acme.work")

    outcomes = [messages_or_outcome(each) for each in (foreign, delivery(b"{}"))]

    assert messages_or_outcome(delivery(encode(accepted))) == [accepted]
    assert outcomes[0] == DONE
    assert isinstance(outcomes[1], DeadLettered)


async def read(*deliveries: Delivery) -> list[CommandBatch]:
    return [batch async for batch in read_batches(deliveries, PartSize())]


async def test_batch_contains_messages_up_to_the_command_limit() -> None:
    half = MAX_COMMANDS // 2

    first, second = await read(commands(half), commands(half), commands(1))

    assert [len(batch.items) for batch in (first, second)] == [2 * half, 1]


async def test_invalid_message_becomes_a_dead_letter_at_its_position() -> None:
    (batch,) = await read(commands(1), delivery(b"{}"), commands(1))

    before, dead, after = batch.outcomes
    assert (before, after) == (DONE, DONE)
    assert isinstance(dead, DeadLettered)
    assert len(batch.items) == 2


async def test_delivery_of_several_messages_has_one_outcome_after_its_last_command() -> None:
    first, second = await read(batch_of(MAX_COMMANDS - 1, 1, 2), commands(1))

    assert [len(batch.messages) for batch in (first, second)] == [2, 2]
    assert [len(batch.replies) for batch in (first, second)] == [2, 2]
    assert (first.outcomes, second.outcomes) == ([], [DONE, DONE])


async def test_invalid_array_of_messages_becomes_one_dead_letter() -> None:
    (batch,) = await read(delivery(b"[{}]", "accepted_commands.batch"))

    (dead,) = batch.outcomes
    assert isinstance(dead, DeadLettered)
    assert not batch.items


async def test_parts_of_a_delivery_are_its_messages_with_separate_ids() -> None:
    parts = split_messages(batch_of(1, 2))

    (batch,) = await read(*parts)

    assert [part.message_id for part in parts] == ["m-1/0", "m-1/1"]
    assert [len(items) for _, items in batch.messages] == [1, 2]
    assert batch.outcomes == [DONE, DONE]


async def test_few_backfills_and_no_other_command_share_a_transaction() -> None:
    body = {"key": "report", "from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z"}
    items = [
        AcceptedCommand(index=each, schedule_id=UUID(int=each), body=body) for each in range(25)
    ]
    many, few = (
        AcceptedCommands(
            tenant="acme", verb="schedule.backfill", accepted_at=NINE, single=False, items=each
        )
        for each in (items, items[:3])
    )

    batches = await read(
        commands(1), *(delivery(encode(each)) for each in (many, few)), commands(1)
    )

    assert [len(each.items) for each in batches] == [1, 10, 10, 5, 3, 1]
    assert [len(each.replies) for each in batches] == [1, 0, 0, 1, 1, 1]
    assert all(item.context is not None for each in batches for item in each.items)


@pytest.mark.requirement("P6")
async def test_message_has_small_transactions_while_several_tenants_send_commands() -> None:
    size = PartSize()
    for tenant in ("acme", "acme"):
        size.note(tenant)
    assert (size.limit("schedule.put"), size.limit("schedule.patch")) == (MAX_COMMANDS, 100)
    batches = read_batches([commands(250)], size)
    alone = [len(batch.items) async for batch in batches]

    size.note("umbrella")
    shared = [batch async for batch in read_batches([commands(250)], size)]

    assert alone == [250]
    assert [len(batch.items) for batch in shared] == [100, 100, 50, 0]
    assert [len(batch.replies) for batch in shared] == [0, 0, 1, 0]
    assert shared[-1].outcomes == [DONE]


class SlowApplier(CommandApplier):
    """An applier that records its steps. Each write takes a while, and each publish fails."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.part_size = PartSize()

    async def apply_batch(self, batch: CommandBatch | None) -> AppliedBatch | None:
        if batch is None or not batch.messages:
            return None
        number = len(self.steps)
        self.steps.append(f"write {number} begins")
        await asyncio.sleep(0.05)
        self.steps.append(f"write {number} ends")
        return AppliedBatch(
            batch=batch, unit=UnitOfWork(), saved=SaveResult([], [], []), applied_at=NINE
        )

    async def _publish(self, applied: AppliedBatch | None) -> None:
        if applied is not None:
            self.steps.append("publish fails")
            raise BrokerUnavailable("The broker is not connected.")


async def test_handle_waits_for_every_task_when_the_events_of_a_batch_fail() -> None:
    applier = SlowApplier()
    before = asyncio.all_tasks()

    with pytest.raises(BrokerUnavailable):
        await applier.handle([commands(MAX_COMMANDS) for _ in range(3)])

    assert applier.steps == [
        "write 0 begins",
        "write 0 ends",
        "write 2 begins",
        "publish fails",
        "write 2 ends",
    ]
    assert asyncio.all_tasks() == before


async def test_parser_of_many_commands_lets_other_tasks_run() -> None:
    iterations = 0

    async def count_iterations() -> None:
        nonlocal iterations
        while True:
            iterations += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(count_iterations())
    await read(commands(MAX_COMMANDS))
    task.cancel()

    assert iterations >= MAX_COMMANDS // PARSE_CHUNK
