"""Handling deliveries: patience with what is away, and the only acknowledgements."""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import structlog
from aio_pika.abc import AbstractIncomingMessage

from harebell.client.connection import translate_amqp_errors
from harebell.contract.amqp_names import check_version
from harebell.contract.dead_letter import DeadMessage
from harebell.contract.errors import BrokerUnavailable, HarebellError, Rejected, Transient
from harebell.messaging.dead_letters import dead_letter_of_message
from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.runtime.clock import Clock
from harebell.runtime.retries import backoff_delay

MAX_TRIES: Final = 5  # of a handler that fails in a way nobody foresaw, before the dead letters
MAX_ERROR: Final = 512  # characters of an error that a dead letter quotes
# Bytes of a body that a dead letter carries. In base64, with the rest, it must be less than the
# largest message that a broker takes (RabbitMQ 4: 16 MiB), or the queue would stand still for it.
MAX_CARRIED: Final = 8 * 1024 * 1024

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Done:
    """Handled, or found to be a repeat."""


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """Can never be handled: to the dead letters, with the reason."""

    reason: str
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Not handled when the service stopped: not acknowledged, so that it comes again."""


Outcome: TypeAlias = Done | DeadLettered | Abandoned
DONE: Final = Done()
ABANDONED: Final = Abandoned()
Handler: TypeAlias = Callable[["Delivery"], Awaitable[Outcome]]
BatchHandler: TypeAlias = Callable[[Sequence["Delivery"]], Awaitable[Sequence[Outcome]]]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message as a handler sees it: it can read, not acknowledge."""

    message: AbstractIncomingMessage
    queue: str

    @property
    def body(self) -> bytes:
        return self.message.body

    @property
    def trusted_body(self) -> bytes:
        """Of a message between services; raises `Malformed` when it is of a later version."""
        check_version(self.message.type)
        return self.message.body

    @property
    def routing_key(self) -> str:
        return self.message.routing_key or ""

    @property
    def message_id(self) -> str | None:
        return self.message.message_id


class Acknowledger:
    """Forward first, acknowledge second: a crash in between repeats a message, never loses it."""

    def __init__(self, publisher: Publisher, clock: Clock) -> None:
        self._publisher = publisher
        self._clock = clock

    async def acknowledge(self, delivery: Delivery, outcome: Outcome) -> None:
        match outcome:
            case Done():
                pass
            case Abandoned():
                return
            case DeadLettered(reason, error):
                log.warning("dead letter", queue=delivery.queue, reason=reason, error=error)
                await self._publisher.publish(self._dead(delivery, reason, error))
        # when the session is gone, the message comes again
        with suppress(BrokerUnavailable), translate_amqp_errors("not acknowledged"):
            await delivery.message.ack()

    def _dead(self, delivery: Delivery, reason: str, error: str | None) -> OutgoingMessage:
        dead = DeadMessage(
            queue=delivery.queue,
            message_id=delivery.message_id,
            type=delivery.message.type,
            routing_key=delivery.routing_key,
            reason=reason,
            error=_with_cut(error, len(delivery.body)),
            dead_at=self._clock.now(),
            headers=_plain(delivery.message.headers),
            body=base64.b64encode(delivery.body[:MAX_CARRIED]).decode(),
        )
        return dead_letter_of_message(dead)


def _with_cut(error: str | None, size: int) -> str | None:
    """The error, and that of a body so large only the beginning is here."""
    if size <= MAX_CARRIED:
        return error
    cut = f"cut: the body has {size} bytes"
    return cut if error is None else f"{error} ({cut})"


def _plain(headers: Any) -> dict[str, Any]:  # noqa: ANN401  # the library's table type
    """Scalars as they are, the rest as text; the broker's own (`x-*`) stay out."""
    return {
        name: value if isinstance(value, str | int | float | bool) else str(value)[:MAX_ERROR]
        for name, value in (headers or {}).items()
        if not name.startswith("x-")
    }


async def handle_with_retries(handle: Handler, delivery: Delivery) -> Outcome:
    """Hold the delivery while what it needs is away; give up only on what can never succeed."""
    unforeseen = tries = 0
    while True:
        try:
            return await handle(delivery)
        except Rejected as error:
            return DeadLettered(error.code, error.reason[:MAX_ERROR])
        except Transient as error:
            log.info("held", queue=delivery.queue, error=error.code, reason=error.reason)
        except Exception as error:  # judged where deliveries are handled
            log.exception("handler failed", queue=delivery.queue)
            unforeseen += 1
            if unforeseen >= MAX_TRIES:
                text = f"{type(error).__name__}: {error}"
                return DeadLettered("internal_error", text[:MAX_ERROR])
        tries += 1
        await asyncio.sleep(backoff_delay(tries))


async def acknowledge_with_retries(
    settler: Acknowledger, delivery: Delivery, outcome: Outcome
) -> None:
    tries = 0
    while True:
        try:
            return await settler.acknowledge(delivery, outcome)
        except HarebellError as error:
            log.warning("not forwarded", queue=delivery.queue, error=error.code)
        except Exception:  # whatever it is, the queue must not stand still for it
            log.exception("not settled", queue=delivery.queue)
        tries += 1
        await asyncio.sleep(backoff_delay(tries))
