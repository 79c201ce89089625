"""The command `harebell topology check` with a real broker."""

import json

import aio_pika
import pytest
from tests.rig.command_line import harebell

from harebell.messaging.declare import declare
from harebell.messaging.topology.bus import INTAKE, SYSTEM, delayed_topology
from harebell.messaging.topology.declarations import ExchangeKind

pytestmark = pytest.mark.broker


async def check(amqp_url: str, *options: str) -> tuple[int | None, list[str], str]:
    """Return the exit code, the problems and the messages of the command."""
    done = await harebell("topology", "check", "-o", "json", *options, HAREBELL_AMQP_URL=amqp_url)
    problems = [row["problem"] for row in json.loads(done.output)]
    return done.code, problems, done.messages


async def test_check_finds_no_problem_in_a_declared_topology(amqp_url: str) -> None:
    async with await aio_pika.connect(amqp_url) as connection:
        await declare(connection, SYSTEM)

    code, problems, messages = await check(amqp_url)

    assert (code, problems) == (0, [])
    assert "has every exchange and queue" in messages


async def test_check_names_a_queue_that_differs(amqp_url: str) -> None:
    async with await aio_pika.connect(amqp_url) as connection:
        await declare(connection, SYSTEM)
        channel = await connection.channel()
        await channel.queue_delete(INTAKE.name)
        await channel.declare_queue(INTAKE.name, durable=True)

    code, problems, messages = await check(amqp_url)

    assert code == 1
    [problem] = problems
    assert problem.startswith(f"{INTAKE.name}: ")
    assert "problems: 1" in messages


@pytest.mark.requirement("ASK-4")
async def test_check_names_the_queues_of_an_exchange_without_a_tenant(amqp_url: str) -> None:
    async with await aio_pika.connect(amqp_url) as connection:
        await declare(connection, SYSTEM + delayed_topology({"orders": ExchangeKind.TOPIC}))

    code, problems, _ = await check(amqp_url, "--delayed-exchange", "orders")

    assert code == 1
    waits = "No service consumes this queue, so its messages wait."
    assert [each.partition(" Name")[0] for each in problems] == [
        f"harebell.delayed.orders: {waits}",
        f"harebell.undelivered.delayed.orders: {waits}",
    ]
