"""The retries of a handler, in virtual time: an outage never makes a dead letter."""

from collections.abc import Callable
from typing import Any, cast

from tests.simulation.loop import virtual_time

from harebell.contract.errors import DatabaseUnavailable, InvalidInput
from harebell.messaging.acknowledge import (
    DONE,
    MAX_UNEXPECTED_FAILURES,
    DeadLettered,
    Delivery,
    Outcome,
    handle_with_retries,
)
from harebell.messaging.received_properties import Undecodable

MANY = 50  # failures, which last some minutes


class FailingHandler:
    """A handler that raises an error at its first calls."""

    def __init__(self, failures: int, error: Callable[[], Exception]) -> None:
        self.failures = failures
        self.error = error
        self.calls = 0

    async def handle(self, _: Delivery) -> Outcome:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error()
        return DONE


def outcome_of(handler: FailingHandler) -> Outcome:
    delivery = Delivery(cast("Any", None), "harebell.queue")
    with virtual_time() as loop:
        return loop.run_until_complete(handle_with_retries(handler.handle, delivery))


def test_delivery_is_retried_without_limit_during_an_outage() -> None:
    handler = FailingHandler(MANY, lambda: DatabaseUnavailable("The database is away."))

    assert outcome_of(handler) == DONE
    assert handler.calls == MANY + 1


def test_delivery_is_dead_lettered_after_some_unexpected_failures() -> None:
    handler = FailingHandler(MANY, lambda: RuntimeError("a defect"))

    outcome = outcome_of(handler)

    assert outcome == DeadLettered("internal_error", "RuntimeError: a defect")
    assert handler.calls == MAX_UNEXPECTED_FAILURES


def test_delivery_is_dead_lettered_at_once_when_its_headers_cannot_be_decoded() -> None:
    handler = FailingHandler(MANY, lambda: Undecodable("The headers end too early."))

    assert outcome_of(handler) == DeadLettered("undecodable", "The headers end too early.")
    assert handler.calls == 1


def test_delivery_is_dead_lettered_at_once_when_it_can_never_succeed() -> None:
    handler = FailingHandler(MANY, lambda: InvalidInput("The field is wrong.", field="key"))

    assert isinstance(outcome_of(handler), DeadLettered)
    assert handler.calls == 1
