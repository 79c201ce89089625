"""The isolation of failing messages: each leaves alone, after the first failure, with an answer."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

import structlog

from harebell.contract.errors import InternalError, InvalidInput, Rejected, Transient
from harebell.messaging.acknowledge import (
    DONE,
    MAX_ERROR_LENGTH,
    MAX_UNEXPECTED_FAILURES,
    BatchHandler,
    DeadLettered,
    Delivery,
    Handler,
    Outcome,
    PartsDeadLettered,
    handle_with_retries,
)
from harebell.messaging.received_properties import Undecodable
from harebell.messaging.sender_check import digest
from harebell.runtime.retries import WriteConflict, backoff_delay

Answer: TypeAlias = Callable[[Delivery, Rejected], Awaitable[None]]
Split: TypeAlias = Callable[[Delivery], Sequence[Delivery]]

ID_DIGITS: Final = 12  # hexadecimal digits of the id of an error

log = structlog.get_logger()


def answering(handle: Handler, answer: Answer) -> Handler:
    """Return a handler that answers and dead-letters a message after its first failure.

    Only a `Transient` error is raised, and a `WriteConflict` is repeated a few times before.
    If no rule foresaw an error, the answer, the dead letter and the log have an id for it.
    """

    async def handle_answered(delivery: Delivery) -> Outcome:
        tries = 0
        while True:
            try:
                return await handle(delivery)
            except WriteConflict as error:
                tries += 1
                if tries >= MAX_UNEXPECTED_FAILURES:
                    return await _fail(delivery, error, answer)
            except Transient:
                raise
            except Exception as error:  # noqa: BLE001  # `_fail` logs the error
                return await _fail(delivery, error, answer)
            await asyncio.sleep(backoff_delay(tries))

    return handle_answered


def isolating(
    handle: BatchHandler, answer: Answer, split: Split = lambda delivery: (delivery,)
) -> BatchHandler:
    """Return a handler that handles each part of a delivery alone after `handle` has failed.

    A message that fails is answered and becomes a dead letter without the others.
    A batch of several deliveries fails as a whole, and its worker repeats each delivery alone.
    """

    async def handle_one(part: Delivery) -> Outcome:
        return (await handle([part]))[0]

    handle_part = answering(handle_one, answer)

    async def handle_isolated(deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        if len(deliveries) > 1:
            return await handle(deliveries)
        (delivery,) = deliveries
        try:
            return await handle(deliveries)
        except Transient:
            raise
        except Exception as error:  # noqa: BLE001  # the part that fails again logs the error
            parts = split(delivery)
            if len(parts) <= 1:
                is_conflict = isinstance(error, WriteConflict)
                again = handle_part(delivery) if is_conflict else _fail(delivery, error, answer)
                return [await again]
            log.info("delivery split", queue=delivery.queue, parts=len(parts), error=str(error))
        outcomes = [(part, await handle_with_retries(handle_part, part)) for part in parts]
        dead = tuple((part, each) for part, each in outcomes if isinstance(each, DeadLettered))
        return [PartsDeadLettered(dead) if dead else DONE]

    return handle_isolated


async def _fail(delivery: Delivery, error: Exception, answer: Answer) -> DeadLettered:
    """Answer a delivery that failed with `error`, and return its outcome."""
    match error:
        case Rejected():
            rejected, text = error, error.reason
        case Undecodable():
            rejected, text = InvalidInput(error.reason, code=error.code), error.reason
        case _:
            id_ = _error_id(delivery)
            log.error("handler failed", queue=delivery.queue, error_id=id_, exc_info=error)
            rejected, text = InternalError(id_), f"Error {id_}: {type(error).__name__}: {error}"
    with suppress(Rejected, Undecodable):  # a delivery that cannot be read names no receiver
        await answer(delivery, rejected)
    return DeadLettered(rejected.code, text[:MAX_ERROR_LENGTH])


def _error_id(delivery: Delivery) -> str:
    """Return the id of the error of a delivery, which a repeat of the delivery repeats."""
    parts = (delivery.queue.encode(), delivery.routing_key.encode(), delivery.body)
    return digest(*parts)[:ID_DIGITS]
