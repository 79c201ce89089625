"""A failing message in a delivery with several messages, in virtual time."""

from collections.abc import Sequence

import pytest
from tests.simulation.loop import virtual_time

from harebell.contract.errors import DatabaseUnavailable
from harebell.messaging.acknowledge import DONE, Delivery, Outcome, PartsDeadLettered
from harebell.messaging.isolation import isolating
from harebell.messaging.received_message import ReceivedMessage


def delivery(*words: str) -> Delivery:
    return Delivery(ReceivedMessage(body=" ".join(words).encode()), "harebell.queue")


def split(whole: Delivery) -> list[Delivery]:
    return [delivery(word) for word in whole.body.decode().split()]


class Handler:
    """A handler that fails for each delivery with the word `bad`, and records the others."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error or RuntimeError("a defect")
        self.handled: list[str] = []

    async def handle(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        text = [each.body.decode() for each in deliveries]
        if any("bad" in each for each in text):
            raise self.error
        self.handled += text
        return [DONE] * len(deliveries)


def handle(handler: Handler, *deliveries: Delivery) -> Sequence[Outcome]:
    with virtual_time() as loop:
        return loop.run_until_complete(isolating(handler.handle, split)(deliveries))


def test_only_the_failing_part_becomes_a_dead_letter() -> None:
    handler = Handler()

    (outcome,) = handle(handler, delivery("one", "bad", "two"))

    assert isinstance(outcome, PartsDeadLettered)
    assert [(part.body, dead.reason) for part, dead in outcome.parts] == [
        (b"bad", "internal_error")
    ]
    assert handler.handled == ["one", "two"]


def test_delivery_without_a_failing_part_is_handled_once() -> None:
    handler = Handler()

    assert handle(handler, delivery("one", "two")) == [DONE]
    assert handler.handled == ["one two"]


def test_delivery_with_one_message_fails_as_before() -> None:
    with pytest.raises(RuntimeError):
        handle(Handler(), delivery("bad"))


def test_batch_of_deliveries_fails_as_before() -> None:
    with pytest.raises(RuntimeError):
        handle(Handler(), delivery("one", "two"), delivery("bad", "three"))


def test_outage_splits_no_delivery() -> None:
    handler = Handler(DatabaseUnavailable("The database is away."))

    with pytest.raises(DatabaseUnavailable):
        handle(handler, delivery("one", "bad"))

    assert handler.handled == []
