"""What becomes of deliveries: handled, held, or sent to the dead letters; nothing is lost."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from tests.integration.messaging.inbox import QUEUE, Inbox, body_of, open_inbox

from harebell.contract.amqp_names import DEAD
from harebell.contract.errors import DatabaseUnavailable, InvalidInput
from harebell.messaging.acknowledge import (
    ABANDONED,
    DONE,
    MAX_BODY_BYTES,
    MAX_UNEXPECTED_FAILURES,
    Acknowledger,
    DeadLettered,
    Delivery,
    Outcome,
)
from harebell.messaging.consumer import ConcurrentWorker, OrderedWorker, Worker
from harebell.messaging.publisher import OutgoingMessage

pytestmark = [pytest.mark.broker, pytest.mark.broker_version]


class Handler:
    """Takes every body but those that a test names."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        self.tries: list[str] = []
        self.done: list[str] = []
        self.is_away = False

    async def one(self, delivery: Delivery) -> Outcome:
        body = delivery.body.decode()
        self.tries.append(body)
        self.inbox.changed.set()
        if body.startswith("poison"):
            raise KeyError(body)
        if body.startswith("malformed"):
            raise InvalidInput("is not of this world", code="not_json")
        if body.startswith("unwanted"):
            return DeadLettered("unwanted", "by this test")
        if body.startswith("later") and self.is_away:
            raise DatabaseUnavailable("away")
        self.done.append(body)
        return DONE

    async def many(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        return [await self.one(delivery) for delivery in deliveries]

    def concurrent(self, settler: Acknowledger) -> Worker:
        return ConcurrentWorker(self.one, settler)

    def ordered(self, settler: Acknowledger) -> Worker:
        return OrderedWorker(self.many, settler, limit=10, gather_time=0.05)


@pytest.fixture
async def inbox(amqp_url: str) -> AsyncIterator[Inbox]:
    async with open_inbox(amqp_url) as opened:
        yield opened


@pytest.fixture
def handler(inbox: Inbox) -> Handler:
    return Handler(inbox)


@pytest.mark.requirement("S110")
@pytest.mark.parametrize("way", ["concurrent", "ordered"])
async def test_a_message_that_breaks_its_handler_is_a_dead_letter_and_the_rest_flows(
    inbox: Inbox, handler: Handler, way: str
) -> None:
    await inbox.put("a", "poison", "b", "c")

    async with inbox.consumed_by(getattr(handler, way)):
        dead = await inbox.dead()
        await inbox.until(lambda: {"a", "b", "c"} <= set(handler.done))

    assert (body_of(dead), dead.queue, dead.reason) == ("poison", "inbox", "internal_error")
    assert "KeyError" in (dead.error or "")
    assert (
        MAX_UNEXPECTED_FAILURES <= handler.tries.count("poison") <= MAX_UNEXPECTED_FAILURES + 1
    )  # once more in its batch
    assert await inbox.ready() == 0


@pytest.mark.requirement("S110")
@pytest.mark.parametrize(
    ("body", "reason", "error"),
    [
        ("malformed", "not_json", "is not of this world"),
        ("unwanted", "unwanted", "by this test"),
    ],
)
async def test_what_can_never_succeed_is_a_dead_letter_at_the_first_try(
    inbox: Inbox, handler: Handler, body: str, reason: str, error: str
) -> None:
    await inbox.put(body)

    async with inbox.consumed_by(handler.ordered):
        dead = await inbox.dead()

    assert (body_of(dead), dead.reason, dead.error) == (body, reason, error)
    assert handler.tries == [body]
    assert await inbox.ready() == 0


@pytest.mark.requirement("S110")
async def test_of_a_body_too_large_for_a_letter_the_beginning_is_kept_and_its_size_told(
    inbox: Inbox, handler: Handler
) -> None:
    body = "unwanted".ljust(MAX_BODY_BYTES + 1)
    await inbox.publisher.publish(
        OutgoingMessage(
            exchange="", routing_key=QUEUE, body=body.encode(), type="test", message_id="large"
        )
    )

    async with inbox.consumed_by(handler.concurrent):
        dead = await inbox.dead()

    assert body_of(dead) == body[:MAX_BODY_BYTES]
    assert dead.error == f"by this test (cut: the body has {len(body)} bytes)"
    assert await inbox.ready() == 0


@pytest.mark.requirement("S91")
async def test_a_delivery_is_held_while_what_it_needs_is_away(
    inbox: Inbox, handler: Handler
) -> None:
    handler.is_away = True
    await inbox.put("later", "a")

    async with inbox.consumed_by(handler.concurrent):
        await inbox.until(lambda: handler.tries.count("later") > 2)
        before = list(handler.done)
        handler.is_away = False
        await inbox.until(lambda: "later" in handler.done)

    assert before == ["a"]
    assert inbox.sessions == 1  # held, not sent back and forth
    assert await inbox.ready() == 0


@pytest.mark.requirement("S91")
async def test_held_in_order_nothing_overtakes(inbox: Inbox, handler: Handler) -> None:
    handler.is_away = True
    await inbox.put("later 1", "later 2", "later 3")

    async with inbox.consumed_by(handler.ordered):
        await inbox.until(lambda: len(handler.tries) > 3)
        handler.is_away = False
        await inbox.until(lambda: len(handler.done) == 3)

    assert handler.done == ["later 1", "later 2", "later 3"]


@pytest.mark.requirement("S73")
async def test_what_was_not_handled_before_the_stop_comes_again(
    inbox: Inbox, handler: Handler
) -> None:
    abandoned = asyncio.Event()

    async def abandon(_: Delivery) -> Outcome:
        abandoned.set()
        return ABANDONED

    await inbox.put("a")
    async with inbox.consumed_by(lambda settler: ConcurrentWorker(abandon, settler)):
        await abandoned.wait()
    async with inbox.consumed_by(handler.concurrent):
        await inbox.until(lambda: handler.done == ["a"])

    assert await inbox.ready() == 0


@pytest.mark.requirement("S110")
async def test_a_dead_letter_is_forwarded_before_its_message_is_acknowledged(
    inbox: Inbox, handler: Handler
) -> None:
    await inbox.channel.exchange_delete(DEAD)
    await inbox.put("malformed")

    async with inbox.consumed_by(handler.concurrent):
        await inbox.until(lambda: handler.tries == ["malformed"])
        inbox.line.cut()
        await inbox.until(lambda: len(handler.tries) > 1)
        await inbox.declare_all()
        dead = await inbox.dead()

    assert body_of(dead) == "malformed"
    assert await inbox.ready() == 0
