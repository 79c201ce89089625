"""A failing message in a delivery with several messages, in virtual time."""

from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs
from tests.simulation.loop import virtual_time

from harebell.contract.errors import (
    DatabaseUnavailable,
    HarebellError,
    InvalidInput,
    Rejected,
)
from harebell.messaging.acknowledge import DONE, DeadLettered, Delivery, Outcome, PartsDeadLettered
from harebell.messaging.isolation import isolating
from harebell.messaging.received_message import ReceivedMessage
from harebell.messaging.received_properties import Undecodable
from harebell.runtime.retries import WriteConflict


def delivery(*words: str) -> Delivery:
    return Delivery(ReceivedMessage(body=" ".join(words).encode()), "harebell.queue")


def split(whole: Delivery) -> list[Delivery]:
    return [delivery(word) for word in whole.body.decode().split()]


class Handler:
    """A handler that fails for each delivery with the word `bad`, and records the others."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error or RuntimeError("a defect")
        self.handled: list[str] = []
        self.calls = 0

    async def handle(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        self.calls += 1
        text = [each.body.decode() for each in deliveries]
        if any("bad" in each for each in text):
            raise self.error
        self.handled += text
        return [DONE] * len(deliveries)


async def split_into_words(
    handler: Handler, *deliveries: Delivery
) -> tuple[Sequence[Outcome], list[tuple[bytes, Rejected]]]:
    """Return the outcomes, and the bodies and errors of the answers."""
    answers: list[tuple[bytes, Rejected]] = []

    async def answer(failed: Delivery, error: Rejected) -> None:
        answers.append((failed.body, error))

    return await isolating(handler.handle, answer, split)(deliveries), answers


def handle(
    handler: Handler, *deliveries: Delivery
) -> tuple[Sequence[Outcome], list[tuple[bytes, Rejected]]]:
    with virtual_time() as loop:
        return loop.run_until_complete(split_into_words(handler, *deliveries))


def test_only_the_failing_part_becomes_a_dead_letter() -> None:
    handler = Handler()

    (outcome,), answers = handle(handler, delivery("one", "bad", "two"))

    assert isinstance(outcome, PartsDeadLettered)
    assert [(part.body, dead.reason) for part, dead in outcome.parts] == [
        (b"bad", "internal_error")
    ]
    assert [body for body, _ in answers] == [b"bad"]
    assert handler.handled == ["one", "two"]


def test_delivery_without_a_failing_part_is_handled_once() -> None:
    handler = Handler()

    assert handle(handler, delivery("one", "two")) == ([DONE], [])
    assert handler.handled == ["one two"]


def test_error_that_no_rule_foresaw_has_the_same_id_in_answer_dead_letter_and_log() -> None:
    handler = Handler()

    with capture_logs() as lines:
        (outcome,), ((_, error),) = handle(handler, delivery("bad"))

    (id_,) = [line["error_id"] for line in lines if "error_id" in line]
    assert isinstance(outcome, DeadLettered)
    assert (outcome.reason, outcome.error) == (
        "internal_error",
        f"Error {id_}: RuntimeError: a defect",
    )
    assert (error.code, id_ in error.reason) == ("internal_error", True)
    assert handler.calls == 1


@pytest.mark.parametrize(
    "error", [InvalidInput("It is wrong.", code="wrong"), Undecodable("It is wrong.")]
)
def test_foreseen_error_is_the_answer_and_the_reason(error: HarebellError) -> None:
    (outcome,), ((_, answered),) = handle(Handler(error), delivery("bad"))

    assert outcome == DeadLettered(error.code, error.reason)
    assert (answered.code, answered.reason) == (error.code, error.reason)


class LosingHandler(Handler):
    """A handler that loses against another process `conflicts` times."""

    def __init__(self, conflicts: int) -> None:
        super().__init__()
        self.conflicts = conflicts

    async def handle(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        self.calls += 1
        if self.calls <= self.conflicts:
            raise WriteConflict("The row exists.")
        return [DONE] * len(deliveries)


def test_conflict_with_another_process_is_no_failure_at_once() -> None:
    assert handle(LosingHandler(2), delivery("one")) == ([DONE], [])


def test_conflict_that_lasts_is_a_failure() -> None:
    (outcome,), ((_, error),) = handle(LosingHandler(100), delivery("one"))

    assert isinstance(outcome, DeadLettered)
    assert (outcome.reason, error.code) == ("internal_error", "internal_error")


def test_delivery_whose_sender_cannot_be_read_becomes_a_dead_letter() -> None:
    async def answer(_: Delivery, error: Rejected) -> None:
        raise Undecodable(error.reason)

    with virtual_time() as loop:
        (outcome,) = loop.run_until_complete(isolating(Handler().handle, answer)([delivery("bad")]))

    assert isinstance(outcome, DeadLettered)


def test_batch_of_deliveries_fails_as_a_whole() -> None:
    with pytest.raises(RuntimeError):
        handle(Handler(), delivery("one", "two"), delivery("bad", "three"))


def test_outage_splits_no_delivery() -> None:
    handler = Handler(DatabaseUnavailable("The database is away."))

    with pytest.raises(DatabaseUnavailable):
        handle(handler, delivery("one", "bad"))

    assert handler.handled == []
