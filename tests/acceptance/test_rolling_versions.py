"""Messages with an unknown version: rejected with a response, or stored as a dead letter."""

import aio_pika
import pytest
from tests.acceptance.amqp_client import COMMANDS, AmqpClient
from tests.acceptance.stack import Tenant
from tests.rig.polling import until

from harebell.contract.amqp_names import CHANGES, DELAY, DUE, EVENTS, QUERIES, WORK
from harebell.messaging.topology.bus import SYSTEM
from harebell.messaging.topology.delay_queues import SHORTEST_MS, delay_queue_key

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

UNKNOWN = "unknown_version"
_DEAD_LETTERS = """
SELECT reason, error, payload->>'queue' AS queue FROM dead_letters WHERE payload->>'message_id' = $1
"""


@pytest.mark.parametrize(
    ("exchange", "verb"),
    [
        (COMMANDS, "schedule.put"),
        (COMMANDS, "dlq.replay"),
        (QUERIES, "schedule.list"),
        (QUERIES, "dlq.list"),
    ],
)
async def test_request_with_an_unknown_version_gets_a_rejection(
    exchange: str, verb: str, tenant: Tenant
) -> None:
    async with AmqpClient.open(tenant.stack.amqp_url, tenant.name) as amqp:
        response = await amqp.request(verb, b"{}", exchange=exchange, type_=f"harebell.{verb}.v9")

    assert (response["ok"], response["error"]["code"]) == (False, UNKNOWN)
    assert f"harebell.{verb}.v9" in response["error"]["reason"]


@pytest.mark.parametrize(
    ("exchange", "key", "verb", "queue"),
    [
        (CHANGES, "schedule", "accepted_commands", "harebell.ticker"),
        (CHANGES, "dlq", "accepted_commands", "harebell.dlq"),
        (CHANGES, "breaker", "accepted_commands", "harebell.breakers"),
        (DELAY, delay_queue_key(SHORTEST_MS), "ticket.batch", "harebell.dispatcher"),
        (DUE, "run", "ticket.batch", "harebell.dispatcher"),
        (WORK, "default.normal", "ticket.batch", "harebell.work.default.normal"),
        (EVENTS, "acme.run.dead", "run.dead", "harebell.ticker.outcomes"),
    ],
)
async def test_message_with_an_unknown_version_is_dead_lettered_once_with_the_reason(
    exchange: str, key: str, verb: str, queue: str, tenant: Tenant
) -> None:
    name, type_ = f"{tenant.name}-{key}", f"harebell.{verb}.v9"
    async with AmqpClient.open(tenant.stack.amqp_url, tenant.name) as amqp:
        message = aio_pika.Message(b"[]", message_id=name, type=type_)
        target_exchange = await amqp.channel.get_exchange(exchange, ensure=False)
        await target_exchange.publish(message, key)
        dead_letters = await until(
            lambda: tenant.ledger.fetch(_DEAD_LETTERS, name), what="the dead letter"
        )
        remaining = await amqp.channel.declare_queue(queue, passive=True)

    assert SYSTEM.carries(exchange, key)
    assert [(row["reason"], row["queue"]) for row in dead_letters] == [(UNKNOWN, queue)]
    assert type_ in dead_letters[0]["error"]
    assert remaining.declaration_result.message_count == 0
