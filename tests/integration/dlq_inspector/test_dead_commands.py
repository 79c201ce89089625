"""A dead command is replayed as a command: once, with its id, and again if it dies again."""

import asyncio
import base64
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import pytest
from aio_pika.abc import AbstractIncomingMessage
from tests.integration.dlq_inspector.environment import NINE, TIMEOUT, DlqEnvironment
from tests.rig.polling import until

from harebell.contract import amqp_names
from harebell.contract.accepted_commands import AcceptedCommand
from harebell.contract.dead_letter import DeadMessage
from harebell.contract.json_codec import encode_all
from harebell.contract.views import DeadLetterView
from harebell.messaging.topology.bus import INTAKE, QUERY, tenant_intake_queue
from harebell.messaging.topology.declarations import DELIVERY_LIMIT

PUT: Final = b'{"key": "daily"}'
SECRET: Final = b'{"http": {"headers": {"authorization": "Bearer abc"}}}'
HUGE: Final = b"a" * (1024 * 1024 + 1)
DELIVERIES: Final = 1 + DELIVERY_LIMIT  # the first delivery does not count
UNKNOWN: Final = UUID(int=0)


async def add_dead_command(
    dlq: DlqEnvironment,
    body: bytes = PUT,
    *,
    queue: str = INTAKE.name,
    dead_at: datetime = NINE,
) -> DeadLetterView:
    """Publish the dead letter of a command and return it."""
    dead = DeadMessage(
        queue=queue,
        message_id="m-1",
        user_id="acme_ci",
        type=amqp_names.message_type("schedule.put"),
        routing_key="acme.schedule.put",
        reason="delivery_limit",
        dead_at=dead_at,
        body=base64.b64encode(body).decode(),
    )
    await dlq.publish(amqp_names.DEAD, f"message.{queue}", encode_all([dead]), "message.dead")
    return await only(dlq)


async def only(dlq: DlqEnvironment) -> DeadLetterView:
    [dead_letter] = await dlq.wait_for_dead_letters(1)
    return dead_letter


async def replay(dlq: DlqEnvironment, *ids: UUID) -> list[str]:
    await dlq.send_command("dlq.replay", *ids)
    results = await dlq.next_results()
    return [results[id_] for id_ in ids]


async def next_command(dlq: DlqEnvironment) -> AbstractIncomingMessage:
    queue = await dlq.channel.get_queue(INTAKE.name, ensure=False)
    async with asyncio.timeout(TIMEOUT), queue.iterator(no_ack=True) as messages:
        return await anext(messages)


@pytest.mark.parametrize("queue", [INTAKE.name, tenant_intake_queue("acme").name])
async def test_dead_command_is_published_again_with_its_id(dlq: DlqEnvironment, queue: str) -> None:
    dead = await add_dead_command(dlq, queue=queue)

    results = await replay(dlq, dead.id)
    again = await replay(dlq, dead.id)
    command = await next_command(dlq)

    assert (results, again) == (["replayed"], ["already_replayed"])
    assert (command.body, command.message_id) == (PUT, "m-1")
    assert (command.exchange, command.routing_key) == ("harebell.commands", "acme.schedule.put")
    assert command.type == "harebell.schedule.put.v1"
    assert command.user_id is not None
    assert command.headers["harebell-sender"] == "acme_ci"
    detail = await dlq.acme.dead_letter(dead.id)
    assert [each.actor for each in detail.replay_history] == ["ann"]


async def test_command_that_dies_again_opens_its_dead_letter_again(dlq: DlqEnvironment) -> None:
    dead = await add_dead_command(dlq)
    await replay(dlq, dead.id)
    repeated = await add_dead_command(dlq)
    later = NINE + timedelta(minutes=1)
    await add_dead_command(dlq, dead_at=later)

    async def reopened_one() -> DeadLetterView | None:
        found = await only(dlq)
        return found if found.state == "open" else None

    reopened = await until(reopened_one, within=TIMEOUT, what="an open dead letter")
    assert reopened is not None
    assert (repeated.id, repeated.state) == (dead.id, "replayed")
    assert (reopened.id, reopened.dead_at) == (dead.id, later)
    assert await replay(dlq, dead.id) == ["replayed"]


async def test_imported_command_names_no_sender(dlq: DlqEnvironment) -> None:
    """A tenant may write the login of an operator into an import."""
    dead = await add_dead_command(dlq)
    exported = await dlq.acme.dead_letter(dead.id)
    assert exported.payload["user_id"] == "acme_ci"
    await dlq.database.execute("DELETE FROM dead_letters")
    forged = exported.payload | {"user_id": "harebell_operator"}
    export = {"kind": "message", "payload": forged, "body": exported.body}
    await dlq.send_items("dlq.import", AcceptedCommand(index=0, body={"dead_letters": [export]}))
    [imported] = await dlq.next_results()

    assert await replay(dlq, imported) == ["replayed"]
    assert "harebell-sender" not in (await next_command(dlq)).headers


@pytest.mark.parametrize(
    ("body", "queue"), [(SECRET, INTAKE.name), (HUGE, INTAKE.name), (PUT, QUERY.name)]
)
async def test_message_without_its_whole_command_is_not_replayed(
    dlq: DlqEnvironment, body: bytes, queue: str
) -> None:
    dead = await add_dead_command(dlq, body, queue=queue)

    assert await replay(dlq, dead.id, UNKNOWN) == ["not_replayable", "not_found"]
    assert (await only(dlq)).state == "open"


async def test_command_that_the_broker_dead_letters_is_replayed(dlq: DlqEnvironment) -> None:
    """Consumers that end before an acknowledgement use up the deliveries of a command."""
    await dlq.publish(
        amqp_names.COMMANDS, "acme.schedule.put", PUT, "schedule.put", message_id="m-2"
    )
    for _ in range(DELIVERIES):
        async with dlq.connection.channel() as channel, asyncio.timeout(TIMEOUT):
            queue = await channel.get_queue(INTAKE.name, ensure=False)
            await anext(queue.iterator())  # the end of the channel returns the message
    dead = await only(dlq)

    assert dead.reason == "delivery_limit"
    assert await replay(dlq, dead.id) == ["replayed"]
    assert (await next_command(dlq)).message_id == "m-2"
