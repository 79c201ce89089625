"""The handler of delayed messages: tenants, redeliveries, equal messages and dead letters."""

import asyncio
from datetime import datetime
from typing import Any, cast

import pytest
from pamqp.commands import Basic
from tests.fakes.publisher import FakePublisher
from tests.fakes.tickets import after

from harebell.contract.accepted_commands import ACCEPTED_BATCH, AcceptedCommands, DelayedDelivery
from harebell.contract.amqp_names import delayed_queue_name
from harebell.contract.json_codec import decode_model, list_adapter
from harebell.domain.tenant_policy import TenantPolicies
from harebell.intake.commands.rules import IntakePolicy, TargetPolicy
from harebell.intake.delayed.handler import MESSAGES_PER_TURN, DelayedHandler
from harebell.intake.delayed.repeats import AcceptedDigests
from harebell.messaging.acknowledge import DONE, DeadLettered, Delivery
from harebell.messaging.received_message import ReceivedMessage
from harebell.messaging.received_properties import ReceivedProperties

BATCH = list_adapter(AcceptedCommands)
POLICIES = TenantPolicies.parse(
    {
        "tenants": {
            "shop": {"delayed_exchanges": ["orders"]},
            "post": {"delayed_exchanges": ["mail"], "quotas": {"puts_per_second": 1}},
        }
    }
)


class FrozenClock:
    def from_monotonic(self, seconds: float) -> datetime:
        return after(seconds)


def delayed_handler(publisher: FakePublisher, *, broker_timestamps: bool = False) -> DelayedHandler:
    return DelayedHandler(
        publisher=publisher,
        clock=cast("Any", FrozenClock()),
        policy=IntakePolicy(TargetPolicy(policies=POLICIES)),
        broker_timestamps=broker_timestamps,
    )


def delivery(
    exchange: str = "orders",
    *,
    body: bytes = b"tick",
    message_id: str | None = None,
    tag: int = 1,
    is_redelivered: bool = False,
    delay: object = 1_000,
    received_at: float = 0.0,
    **headers: object,
) -> Delivery:
    message = ReceivedMessage(
        body=body,
        exchange=exchange,
        routing_key="created",
        message_id=message_id,
        headers={"x-delay": delay} | headers,
        properties=ReceivedProperties(Basic.Properties(message_id=message_id).marshal()),
        is_redelivered=is_redelivered,
        tag=tag,
        received_at=received_at,
    )
    return Delivery(message, delayed_queue_name(message.exchange))


def accepted(publisher: FakePublisher) -> list[AcceptedCommands]:
    """Return the accepted commands of the published messages, in their order."""
    found: list[AcceptedCommands] = []
    for each in publisher.published:
        body = each.body if each.type == ACCEPTED_BATCH else b"[" + each.body + b"]"
        commands = decode_model(BATCH, body)
        found += commands
    return found


def keys(publisher: FakePublisher) -> list[str]:
    return [each.items[0].body["key"] for each in accepted(publisher)]


async def test_batch_is_one_message_with_the_tenant_of_each_exchange() -> None:
    publisher = FakePublisher()

    outcomes = await delayed_handler(publisher).handle(
        [delivery(message_id="a"), delivery("mail", message_id="b", is_redelivered=True)]
    )

    assert outcomes == [DONE, DONE]
    assert len(publisher.published) == 1
    found = [(each.tenant, each.delayed, each.reply_to) for each in accepted(publisher)]
    assert found == [
        ("shop", DelayedDelivery.FIRST, None),
        ("post", DelayedDelivery.REPEATED, None),
    ]


async def test_delay_begins_with_the_arrival_and_never_before_an_earlier_message() -> None:
    publisher = FakePublisher()
    handler = delayed_handler(publisher)

    await handler.handle([delivery(tag=1, received_at=1), delivery(tag=2, received_at=3)])
    await handler.handle([delivery(tag=3, received_at=2), delivery(tag=4, received_at=4)])

    begun = [each.accepted_at for each in accepted(publisher)]
    assert begun == [after(1), after(3), after(3), after(4)]


@pytest.mark.parametrize(
    ("broker_timestamps", "waited", "when"),
    [
        (True, 0.25, {"after": "750ms"}),
        (True, 0.999, {"after": "1ms"}),
        (True, 1.0, {"now": True}),
        (True, 86_400.0, {"now": True}),
        (True, -0.25, {"after": "1s"}),  # RabbitMQ's clock is ahead
        (False, 0.25, {"after": "1s"}),
    ],
)
async def test_delay_begins_when_rabbitmq_received_the_message(
    *, broker_timestamps: bool, waited: float, when: dict[str, object]
) -> None:
    publisher = FakePublisher()
    handler = delayed_handler(publisher, broker_timestamps=broker_timestamps)
    timestamp_in_ms = round(after(10 - waited).timestamp() * 1000)

    await handler.handle([delivery(received_at=10, timestamp_in_ms=timestamp_in_ms)])

    (command,) = accepted(publisher)
    assert command.items[0].body["when"] == when
    assert command.accepted_at == after(10)


@pytest.mark.parametrize("text", ["1", None, 1.5])
async def test_delay_begins_with_the_arrival_without_a_time_of_rabbitmq(text: object) -> None:
    publisher = FakePublisher()
    handler = delayed_handler(publisher, broker_timestamps=True)

    await handler.handle([delivery(), delivery(tag=2, timestamp_in_ms=text)])

    assert [each.items[0].body["when"] for each in accepted(publisher)] == [{"after": "1s"}] * 2


async def test_connection_is_read_during_the_check_of_a_batch() -> None:
    loop = asyncio.get_running_loop()
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(turn)

    loop.call_soon(turn)
    batch = [delivery(message_id=f"order-{tag}", tag=tag) for tag in range(10 * MESSAGES_PER_TURN)]
    await delayed_handler(FakePublisher()).handle(batch)

    assert turns >= 10


async def test_refused_messages_are_dead_letters_and_the_others_are_accepted() -> None:
    publisher = FakePublisher()

    outcomes = await delayed_handler(publisher).handle(
        [
            delivery(delay="soon"),
            delivery("unknown"),
            delivery("mail", message_id="first"),
            delivery("mail", message_id="beyond"),
            delivery(message_id="good"),
        ]
    )

    dead = {index: each for index, each in enumerate(outcomes) if isinstance(each, DeadLettered)}
    found = {index: (each.reason, each.tenant) for index, each in dead.items()}
    assert found == {
        0: ("invalid_delay", "shop"),
        1: ("unknown_exchange", None),
        3: ("quota_exceeded", "post"),
    }
    assert "'orders'" in str(dead[0].error)
    assert keys(publisher) == ["delayed/mail/first", "delayed/orders/good"]


async def test_equal_messages_without_an_id_have_different_keys() -> None:
    publisher = FakePublisher()
    handler = delayed_handler(publisher)

    await handler.handle([delivery(tag=1), delivery(tag=2)], session="s")
    await handler.handle([delivery(tag=3)], session="s")

    assert len(set(keys(publisher))) == 3


async def test_redelivery_without_an_id_has_the_key_of_its_first_delivery() -> None:
    publisher = FakePublisher()
    handler = delayed_handler(publisher)

    await handler.handle([delivery(tag=1)], session="first")
    await handler.handle([delivery(tag=1, is_redelivered=True)], session="second")
    await delayed_handler(publisher).handle([delivery(tag=9, is_redelivered=True)])

    assert len(set(keys(publisher))) == 1
    requests = [each.items[0].request_id for each in accepted(publisher)]
    assert len(set(requests)) == 3


async def test_message_that_was_not_published_counts_as_no_equal_message() -> None:
    publisher = FakePublisher()
    handler = delayed_handler(publisher)
    handler.publisher = cast("Any", None)

    try:
        await handler.handle([delivery(tag=1)], session="s")
    except AttributeError:
        handler.publisher = publisher
    await handler.handle([delivery(tag=1)], session="s")
    await delayed_handler(publisher).handle([delivery(tag=1, is_redelivered=True)])

    assert len(keys(publisher)) == 2
    assert len(set(keys(publisher))) == 1


def test_digests_are_bounded_and_the_oldest_is_forgotten() -> None:
    digests = AcceptedDigests(limit=2)

    digests.add(["a", "b"])
    digests.add(["a", "c"])

    assert [each in digests for each in "abc"] == [True, False, True]
