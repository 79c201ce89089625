"""Acknowledgement of deliveries: retries of their handlers and the forwarding of dead letters."""

import asyncio
import base64
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, assert_never

import structlog

from harebell.connection.amqp import translate_amqp_errors
from harebell.contract.amqp_names import X_DELAY, check_version
from harebell.contract.dead_letter import DeadMessage
from harebell.contract.errors import BrokerUnavailable, HarebellError, Rejected, Transient
from harebell.contract.redaction import redact_bytes
from harebell.messaging.dead_letters import dead_letter_of_message
from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.messaging.received_message import ReceivedMessage, UnacknowledgedTags
from harebell.messaging.received_properties import Undecodable
from harebell.messaging.topology.bus import DEAD_LETTERS
from harebell.runtime.clock import Clock
from harebell.runtime.retries import backoff_delay

MAX_UNEXPECTED_FAILURES: Final = 5  # of one handler, before the delivery is dead-lettered
MAX_ERROR_LENGTH: Final = 512  # characters of an error in a dead letter
# RabbitMQ 4 accepts messages of up to 16 MiB. A larger dead letter, whose body is in base64, would
# fail at every try, and its queue would deliver no other message.
MAX_BODY_BYTES: Final = 8 * 1024 * 1024

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a delivery that is processed or that repeats a processed one."""


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """The outcome of a delivery that can never succeed, with the reason."""

    reason: str
    error: str | None = None
    tenant: str | None = None  # null: the routing key or the body of the message names its tenant


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The outcome of a delivery that is unfinished when its service stops.

    The acknowledger does not acknowledge the delivery, so the broker delivers the message again.
    """


@dataclass(frozen=True, slots=True)
class PartsDeadLettered:
    """The outcome of a delivery with several messages, of which these can never succeed."""

    parts: tuple[tuple["Delivery", DeadLettered], ...]


Outcome: TypeAlias = Done | DeadLettered | PartsDeadLettered | Abandoned
DONE: Final = Done()
ABANDONED: Final = Abandoned()
Handler: TypeAlias = Callable[["Delivery"], Awaitable[Outcome]]
BatchHandler: TypeAlias = Callable[[Sequence["Delivery"]], Awaitable[Sequence[Outcome]]]


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message for a handler, which can read the message but not acknowledge it."""

    message: ReceivedMessage
    queue: str

    @property
    def body(self) -> bytes:
        return self.message.body

    @property
    def trusted_body(self) -> bytes:
        """Return the body of a message from another service.

        Raise `InvalidInput` if the version of the message type is too new.
        """
        check_version(self.message.type)
        return self.message.body

    @property
    def routing_key(self) -> str:
        return self.message.routing_key

    @property
    def message_id(self) -> str | None:
        return self.message.message_id


class Acknowledger:
    """The only code that acknowledges and rejects deliveries.

    Dead letters are published before their delivery is acknowledged, so a crash in between repeats
    the message and never loses it. If a message of the queue of dead letters is rejected, the
    broker parks it, or it would return without end.
    """

    def __init__(self, publisher: Publisher, clock: Clock) -> None:
        self._publisher = publisher
        self._clock = clock

    async def acknowledge(
        self, deliveries: Sequence[Delivery], outcomes: Sequence[Outcome]
    ) -> None:
        """Publish the dead letters of the outcomes, and then acknowledge the deliveries.

        A failed publish repeats the dead letters of the deliveries before it, under the same ids.
        """
        done, parked = [], []
        for delivery, outcome in zip(deliveries, outcomes, strict=True):
            if delivery.queue == DEAD_LETTERS.name and isinstance(outcome, DeadLettered):
                log.error("dead letter parked", reason=outcome.reason, error=outcome.error)
                parked.append(delivery)
            elif await self._publish_dead_letters(delivery, outcome):
                done.append(delivery)
        await _acknowledge(done)
        await _reject(parked)

    async def _publish_dead_letters(self, delivery: Delivery, outcome: Outcome) -> bool:
        """Return whether the delivery may be acknowledged after this publish."""
        match outcome:
            case Done():
                return True
            case Abandoned():
                return False
            case DeadLettered():
                await self._dead_letter(delivery, outcome)
                return True
            case PartsDeadLettered(parts):
                for part, dead in parts:
                    await self._dead_letter(part, dead)
                return True
            case _:
                assert_never(outcome)

    async def _dead_letter(self, delivery: Delivery, dead: DeadLettered) -> None:
        log.warning(
            "message dead-lettered", queue=delivery.queue, reason=dead.reason, error=dead.error
        )
        await self._publisher.publish(self._dead_letter_of(delivery, dead))

    def _dead_letter_of(self, delivery: Delivery, dead: DeadLettered) -> OutgoingMessage:
        headers, raw_properties = _read_headers(delivery.message)
        content = DeadMessage(
            queue=delivery.queue,
            tenant=dead.tenant,
            message_id=delivery.message_id,
            user_id=delivery.message.user_id,
            type=delivery.message.type,
            routing_key=delivery.routing_key,
            reason=dead.reason,
            error=_error_with_size(dead.error, len(delivery.body)),
            dead_at=self._clock.now(),
            headers=headers,
            raw_properties=raw_properties,
            body=base64.b64encode(redact_bytes(delivery.body[:MAX_BODY_BYTES])).decode(),
        )
        return dead_letter_of_message(content)


async def _acknowledge(deliveries: Sequence[Delivery]) -> None:
    """Acknowledge deliveries. After the loss of their channel, the broker delivers them again."""
    tags: dict[int, list[int]] = defaultdict(list)
    channels: dict[int, UnacknowledgedTags] = {}
    for delivery in deliveries:
        channel = delivery.message.unacknowledged
        if channel is not None:
            channels[id(channel)] = channel
            tags[id(channel)].append(delivery.message.tag)
    for key, channel in channels.items():
        with (
            suppress(BrokerUnavailable),
            translate_amqp_errors("The messages are not acknowledged"),
        ):
            await channel.acknowledge(tags[key])


async def _reject(deliveries: Sequence[Delivery]) -> None:
    """Reject deliveries. After the loss of their channel, the broker delivers them again."""
    for delivery in deliveries:
        channel = delivery.message.unacknowledged
        if channel is not None:
            with suppress(BrokerUnavailable), translate_amqp_errors("The message is not rejected"):
                await channel.reject(delivery.message.tag)


def _error_with_size(error: str | None, size: int) -> str | None:
    """Add the size of a body that a dead letter carries only in part."""
    if size <= MAX_BODY_BYTES:
        return error
    note = f"The body has {size} bytes, and the dead letter has the first {MAX_BODY_BYTES}."
    return note if error is None else f"{error} {note}"


def _read_headers(message: ReceivedMessage) -> tuple[dict[str, Any], str | None]:
    """Return the headers, or all properties in base64 if the headers cannot be decoded."""
    try:
        return _scalar_headers(message.headers), None
    except Undecodable:
        raw = b"" if message.properties is None else message.properties.raw
        return {}, base64.b64encode(redact_bytes(raw)).decode()


def _scalar_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return scalar values unchanged and other values as text, without the broker's `x-*`.

    `x-delay` belongs to the sender.
    """
    return {
        name: value
        if isinstance(value, str | int | float | bool)
        else str(value)[:MAX_ERROR_LENGTH]
        for name, value in headers.items()
        if name == X_DELAY or not name.startswith("x-")
    }


async def handle_with_retries(handle: Handler, delivery: Delivery) -> Outcome:
    """Call the handler until an outcome is known.

    `Transient` errors are retried without limit; `Rejected` and `Undecodable` are dead-lettered at
    once, and any other error after `MAX_UNEXPECTED_FAILURES` failures.
    """
    unexpected_failures = tries = 0
    while True:
        try:
            return await handle(delivery)
        except (Rejected, Undecodable) as error:
            return DeadLettered(error.code, error.reason[:MAX_ERROR_LENGTH])
        except Transient as error:
            log.info(
                "delivery delayed", queue=delivery.queue, error=error.code, reason=error.reason
            )
        except Exception as error:  # an escaped error would stop the consumer
            log.exception("handler failed", queue=delivery.queue)
            unexpected_failures += 1
            if unexpected_failures >= MAX_UNEXPECTED_FAILURES:
                text = f"{type(error).__name__}: {error}"
                return DeadLettered("internal_error", text[:MAX_ERROR_LENGTH])
        tries += 1
        await asyncio.sleep(backoff_delay(tries))


async def acknowledge_with_retries(
    acknowledger: Acknowledger, deliveries: Sequence[Delivery], outcomes: Sequence[Outcome]
) -> None:
    """Acknowledge the deliveries, and retry after any error."""
    tries = 0
    while True:
        try:
            return await acknowledger.acknowledge(deliveries, outcomes)
        except HarebellError as error:
            log.warning("dead letter not published", queue=deliveries[0].queue, error=error.code)
        except Exception:  # an escaped error would stop the consumer of the queue
            log.exception("acknowledgement failed", queue=deliveries[0].queue)
        tries += 1
        await asyncio.sleep(backoff_delay(tries))
