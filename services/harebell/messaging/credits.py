"""Credits: the notices of a service about the commands that it has applied, for their intake.

Intake names its queue and a number in a header, and the ticker returns the number to that queue.
A lost credit delays the tenant of the command by at most `intake.commands.window.CREDIT_TIMEOUT`.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeAlias

import orjson
import structlog
from pamqp.common import FieldValue
from pydantic import TypeAdapter

from harebell.contract.amqp_names import message_type
from harebell.contract.errors import Transient
from harebell.contract.json_codec import decode_model
from harebell.messaging.acknowledge import Delivery, Outcome
from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.messaging.received_properties import Undecodable
from harebell.messaging.replies import DEFAULT_EXCHANGE
from harebell.messaging.topology.bus import intake_control_queue

CREDIT_QUEUE: Final = "harebell-credit-queue"  # the headers of a message of accepted commands
CREDIT_NUMBER: Final = "harebell-credit-number"
TENANT: Final = "harebell-tenant"
CREDIT_WAIT: Final = 1.0  # seconds for the confirm of a credit, which is only a hint
MAX_CREDITS: Final = 10_000  # in one message

BatchHandler: TypeAlias = Callable[[Sequence[Delivery]], Awaitable[Sequence[Outcome]]]
_NUMBERS: Final[TypeAdapter[list[int]]] = TypeAdapter(list[int])

log = structlog.get_logger()


def credit_headers(queue: str, number: int, *, tenant: str) -> dict[str, FieldValue]:
    """Return the headers that request a credit from the service that applies the commands."""
    return {CREDIT_QUEUE: queue, CREDIT_NUMBER: number, TENANT: tenant}


def tenant_of(delivery: Delivery) -> str:
    """Return the tenant of a message with a credit, or an empty text for all other messages."""
    try:
        return str(delivery.message.headers.get(TENANT, ""))
    except Undecodable:  # its handler meets the same error
        return ""


def read_credits(body: bytes) -> list[int]:
    """Return the numbers of a credit message. Raise `InvalidInput`."""
    return decode_model(_NUMBERS, body)[:MAX_CREDITS]


def granting_credits(handle: BatchHandler, publisher: Publisher) -> BatchHandler:
    """Return the handler that grants the credits of a batch after `handle` has processed it."""

    async def handle_and_grant(deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        outcomes = await handle(deliveries)
        for message in _credit_messages(deliveries):
            try:
                await publisher.publish(message, within=CREDIT_WAIT)
            except Transient as error:  # the intake has stopped, or its broker is busy
                log.debug("credit not granted", queue=message.routing_key, error=error.code)
        return outcomes

    return handle_and_grant


def _credit_messages(deliveries: Iterable[Delivery]) -> Iterable[OutgoingMessage]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for delivery in deliveries:
        headers = delivery.message.headers
        queue, number = headers.get(CREDIT_QUEUE), headers.get(CREDIT_NUMBER)
        # Only a queue of an intake may receive a message through these headers.
        is_queue = isinstance(queue, str) and queue.startswith(intake_control_queue(""))
        if is_queue and isinstance(number, int):
            numbers[str(queue)].append(number)
    for queue, granted in numbers.items():
        yield OutgoingMessage(
            exchange=DEFAULT_EXCHANGE,
            routing_key=queue,
            body=orjson.dumps(granted[:MAX_CREDITS]),
            type=message_type("credit"),
            message_id=f"{queue}/{granted[-1]}",
        )
