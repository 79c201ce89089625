"""Each delivery is handled, retried or dead-lettered, and no message is lost."""

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


class RecordingHandler:
    """A handler whose outcome depends on the first word of a body."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        self.tries: list[str] = []
        self.done: list[str] = []
        self.is_unavailable = False

    async def one(self, delivery: Delivery) -> Outcome:
        body = delivery.body.decode()
        self.tries.append(body)
        self.inbox.changed.set()
        if body.startswith("failing"):
            raise KeyError(body)
        if body.startswith("malformed"):
            raise InvalidInput("The body must be valid.", code="not_json")
        if body.startswith("unwanted"):
            return DeadLettered("unwanted", "The test rejects the body.")
        if body.startswith("later") and self.is_unavailable:
            raise DatabaseUnavailable("The test has no database.")
        self.done.append(body)
        return DONE

    async def many(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        return [await self.one(delivery) for delivery in deliveries]

    def concurrent(self, acknowledger: Acknowledger) -> Worker:
        return ConcurrentWorker(self.one, acknowledger)

    def ordered(self, acknowledger: Acknowledger) -> Worker:
        return OrderedWorker(self.many, acknowledger, limit=10, gather_time=0.05)


@pytest.fixture
async def inbox(amqp_url: str) -> AsyncIterator[Inbox]:
    async with open_inbox(amqp_url) as opened:
        yield opened


@pytest.fixture
def handler(inbox: Inbox) -> RecordingHandler:
    return RecordingHandler(inbox)


@pytest.mark.requirement("S110")
@pytest.mark.parametrize("worker", ["concurrent", "ordered"])
async def test_message_is_dead_lettered_when_its_handler_fails_repeatedly(
    inbox: Inbox, handler: RecordingHandler, worker: str
) -> None:
    await inbox.put("a", "failing", "b", "c")

    async with inbox.consumed_by(getattr(handler, worker)):
        dead = await inbox.dead()
        await inbox.until(lambda: {"a", "b", "c"} <= set(handler.done))

    assert (body_of(dead), dead.queue, dead.reason) == ("failing", "inbox", "internal_error")
    assert "KeyError" in (dead.error or "")
    assert (
        MAX_UNEXPECTED_FAILURES <= handler.tries.count("failing") <= MAX_UNEXPECTED_FAILURES + 1
    )  # the batch is one more try
    assert await inbox.ready() == 0


@pytest.mark.requirement("S110")
@pytest.mark.parametrize(
    ("body", "reason", "error"),
    [
        ("malformed", "not_json", "The body must be valid."),
        ("unwanted", "unwanted", "The test rejects the body."),
    ],
)
async def test_message_is_dead_lettered_at_once_when_it_cannot_succeed(
    inbox: Inbox, handler: RecordingHandler, body: str, reason: str, error: str
) -> None:
    await inbox.put(body)

    async with inbox.consumed_by(handler.ordered):
        dead = await inbox.dead()

    assert (body_of(dead), dead.reason, dead.error) == (body, reason, error)
    assert handler.tries == [body]
    assert await inbox.ready() == 0


@pytest.mark.requirement("S110")
async def test_dead_letter_contains_the_start_and_the_size_of_a_body_that_is_too_large(
    inbox: Inbox, handler: RecordingHandler
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
    assert dead.error == (
        f"The test rejects the body. The body has {len(body)} bytes, "
        f"and the dead letter has the first {MAX_BODY_BYTES}."
    )
    assert await inbox.ready() == 0


@pytest.mark.requirement("S91")
async def test_delivery_is_retried_without_a_new_session_while_the_database_is_unavailable(
    inbox: Inbox, handler: RecordingHandler
) -> None:
    handler.is_unavailable = True
    await inbox.put("later", "a")

    async with inbox.consumed_by(handler.concurrent):
        await inbox.until(lambda: handler.tries.count("later") > 2)
        before = list(handler.done)
        handler.is_unavailable = False
        await inbox.until(lambda: "later" in handler.done)

    assert before == ["a"]
    assert inbox.sessions == 1
    assert await inbox.ready() == 0


@pytest.mark.requirement("S91")
async def test_ordered_worker_keeps_the_order_during_retries(
    inbox: Inbox, handler: RecordingHandler
) -> None:
    handler.is_unavailable = True
    await inbox.put("later 1", "later 2", "later 3")

    async with inbox.consumed_by(handler.ordered):
        await inbox.until(lambda: len(handler.tries) > 3)
        handler.is_unavailable = False
        await inbox.until(lambda: len(handler.done) == 3)

    assert handler.done == ["later 1", "later 2", "later 3"]


@pytest.mark.requirement("S73")
async def test_abandoned_delivery_is_delivered_again_after_the_stop(
    inbox: Inbox, handler: RecordingHandler
) -> None:
    abandoned = asyncio.Event()

    async def abandon(_: Delivery) -> Outcome:
        abandoned.set()
        return ABANDONED

    await inbox.put("a")
    async with inbox.consumed_by(lambda acknowledger: ConcurrentWorker(abandon, acknowledger)):
        await abandoned.wait()
    async with inbox.consumed_by(handler.concurrent):
        await inbox.until(lambda: handler.done == ["a"])

    assert await inbox.ready() == 0


@pytest.mark.requirement("S110")
async def test_dead_letter_is_published_before_its_message_is_acknowledged(
    inbox: Inbox, handler: RecordingHandler
) -> None:
    await inbox.channel.exchange_delete(DEAD)
    await inbox.put("malformed")

    async with inbox.consumed_by(handler.concurrent):
        await inbox.until(lambda: handler.tries == ["malformed"])
        inbox.proxy.cut()
        await inbox.until(lambda: len(handler.tries) > 1)
        await inbox.declare_all()
        dead = await inbox.dead()

    assert body_of(dead) == "malformed"
    assert await inbox.ready() == 0
