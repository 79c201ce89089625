"""The bound of CPU time of one message, and the pauses between its items."""

import asyncio
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.fakes.publisher import FakePublisher
from tests.fakes.replies import RecordedReplies
from tests.fakes.schedules import TASK
from tests.fakes.sender_check import open_sender_check
from tests.fakes.tickets import after

from harebell.contract.accepted_commands import AcceptedCommands
from harebell.contract.json_codec import encode_plain
from harebell.intake.commands.handler import MAX_CHECK_CPU, CommandHandler
from harebell.intake.commands.rules import IntakePolicy
from harebell.messaging.acknowledge import Delivery

ITEMS = 500


def put(items: int) -> Delivery:
    schedules = [
        {"key": f"rare-{n}", "when": {"cron": "0 3 * 2 1#5"}, "target": TASK} for n in range(items)
    ]
    message = SimpleNamespace(
        body=encode_plain(schedules),
        routing_key="acme.schedule.put",
        message_id="r-1",
        reply_to="amq.rabbitmq.reply-to.x",
        correlation_id="c-1",
        user_id="acme",
        type=None,
        exchange="harebell.commands",
        headers={},
    )
    return Delivery(cast("Any", message), "harebell.intake")


def handler(publisher: FakePublisher, seconds_per_item: float) -> CommandHandler:
    readings = count()
    clock = SimpleNamespace(now=lambda: after(0))
    replies = RecordedReplies(publisher.published)
    sender_check, rejection_events = open_sender_check(publisher, clock, replies=replies)
    return CommandHandler(
        publisher,
        cast("Any", clock),
        IntakePolicy(),
        replies=replies,
        sender_check=sender_check,
        rejection_events=rejection_events,
        cpu=lambda: next(readings) * seconds_per_item,
    )


@pytest.mark.requirement("P6")
async def test_message_over_the_bound_of_cpu_time_is_rejected_as_a_whole() -> None:
    publisher = FakePublisher()

    await handler(publisher, 2 * MAX_CHECK_CPU / ITEMS).handle([put(ITEMS)])

    bodies = [each.body.decode() for each in publisher.published]
    assert [each.exchange for each in publisher.published] == ["", "harebell.events"]
    assert all('"too_expensive"' in body for body in bodies)


async def test_message_below_the_bound_is_accepted() -> None:
    publisher = FakePublisher()

    await handler(publisher, MAX_CHECK_CPU / ITEMS / 2).handle([put(ITEMS)])

    (accepted,) = map(AcceptedCommands.model_validate_json, [e.body for e in publisher.published])
    assert len(accepted.items) == ITEMS
    assert all(item.rejection is None for item in accepted.items)


async def test_other_tasks_run_between_the_items_of_a_message() -> None:
    publisher, passes = FakePublisher(), 0

    async def count_passes() -> None:
        nonlocal passes
        while True:
            passes += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(count_passes())
    await handler(publisher, MAX_CHECK_CPU / ITEMS / 2).handle([put(ITEMS)])
    task.cancel()

    assert passes > 10
