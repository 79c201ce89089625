"""The messages of accepted commands: how a service reads, splits, answers and credits them.

For a credit, intake names its queue and a number in a header, and the ticker returns the number to
that queue when it has applied the commands. A lost credit delays the tenant of the command by at
most `CREDIT_TIMEOUT`. Until the credit comes, the bytes of the command count in the window of its
tenant.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import orjson
import structlog
from pamqp.common import FieldValue
from pydantic import TypeAdapter

from harebell.contract.accepted_commands import ACCEPTED_BATCH, AcceptedCommands
from harebell.contract.amqp_names import message_type
from harebell.contract.errors import Rejected, Transient
from harebell.contract.json_codec import decode_model, encode, list_adapter
from harebell.contract.responses import error_response
from harebell.domain.reply_queue import can_reply_to
from harebell.domain.sender import IdentityMode
from harebell.messaging.acknowledge import Delivery, Outcome
from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.messaging.received_properties import Undecodable
from harebell.messaging.replies import DEFAULT_EXCHANGE, ReplySender, reply
from harebell.messaging.topology.bus import intake_control_queue
from harebell.runtime.clock import monotonic

CREDIT_QUEUE: Final = "harebell-credit-queue"  # the headers of a message of accepted commands
CREDIT_NUMBER: Final = "harebell-credit-number"
TENANT: Final = "harebell-tenant"
CREDIT_WAIT: Final = 1.0  # seconds for the confirm of a credit, which is only a hint
MAX_CREDITS: Final = 10_000  # in one message
# A command that arrives at its service waits for the windows of the other active tenants.
WINDOW: Final = 64 * 1024  # bytes of commands, or one larger message
CREDIT_TIMEOUT: Final = 10.0  # seconds after which a credit counts as lost
MAX_UNAPPLIED: Final = 100_000  # messages; further ones count in no window

BatchHandler: TypeAlias = Callable[[Sequence[Delivery]], Awaitable[Sequence[Outcome]]]
_ACCEPTED_COMMANDS: Final = TypeAdapter(AcceptedCommands)
_ACCEPTED_BATCH: Final = list_adapter(AcceptedCommands)
_NUMBERS: Final[TypeAdapter[list[int]]] = TypeAdapter(list[int])

log = structlog.get_logger()


def read_messages(delivery: Delivery) -> list[AcceptedCommands]:
    """Return the messages of a delivery, which contains one or a batch. Raise `InvalidInput`."""
    body = delivery.trusted_body
    if delivery.message.type == ACCEPTED_BATCH:
        return decode_model(_ACCEPTED_BATCH, body)
    return [decode_model(_ACCEPTED_COMMANDS, body)]


def split_messages(delivery: Delivery) -> Sequence[Delivery]:
    """Return one part for each message of a delivery. The parts have no acknowledgement."""
    whole = delivery.message
    return [
        Delivery(
            replace(
                whole,
                body=encode(message),
                type=message_type("accepted_commands"),
                message_id=f"{whole.message_id}/{index}",
                unacknowledged=None,
            ),
            delivery.queue,
        )
        for index, message in enumerate(read_messages(delivery))
    ]


@dataclass(frozen=True, slots=True)
class CommandReplies:
    """The replies to accepted commands, each to a queue that its tenant may name."""

    replies: ReplySender
    identity: IdentityMode

    def send(self, message: AcceptedCommands, body: bytes) -> None:
        """Send the reply to a message, if it asks for one."""
        if message.reply_to and can_reply_to(message.reply_to, message.tenant, self.identity):
            self.replies.send(
                message.actor or message.tenant,
                reply(
                    message.reply_to,
                    message.correlation_id,
                    body,
                    message_id=f"{message.correlation_id}/response",
                ),
            )

    async def answer(self, delivery: Delivery, error: Rejected) -> None:
        """Send the error of a delivery to each of its messages."""
        for message in read_messages(delivery):
            self.send(message, encode(error_response(error)))


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


@dataclass(frozen=True, slots=True)
class _Unapplied:
    """The size of an unapplied message, the queue of its tenant, and its monotonic time."""

    queue: str
    size: int
    since: float


class TenantWindows:
    """The windows of the intake queues of tenants. The queue of all other commands has none.

    Credits come from the ticker for changes of schedules and reports of workers, and from the
    dlq_inspector for commands about dead letters. Without any, the windows admit everything,
    because these services or the definitions file may be of an older version, which knows no
    credits.
    """

    def __init__(
        self,
        *,
        shared_queue: str,
        size_of: Callable[[str], int] = lambda _: WINDOW,
        now: Callable[[], float] = monotonic,
    ) -> None:
        """Create the windows. `size_of` returns the bytes of the window of a queue."""
        self._shared_queue = shared_queue
        self._size_of = size_of
        self._now = now
        self._unapplied: dict[int, _Unapplied] = {}  # by credit number, the oldest first
        self._bytes: Counter[str] = Counter()
        self._last_number = 0
        self._is_granted = False
        self.changed = asyncio.Event()

    def admits(self, queue: str, taken: int, size: int) -> bool:
        """Return whether the queue may pass on `size` bytes after the `taken` bytes of a batch."""
        self._expire()
        if queue == self._shared_queue:
            return True
        pending = self._bytes[queue] + taken
        return not pending or not self._is_granted or pending + size <= self._size_of(queue)

    def reserve(self, queue: str, size: int) -> int | None:
        """Count a message as unapplied, and return its credit number, or None without a window."""
        if queue == self._shared_queue or len(self._unapplied) >= MAX_UNAPPLIED:
            return None
        self._last_number += 1
        self._unapplied[self._last_number] = _Unapplied(queue, size, self._now())
        self._bytes[queue] += size
        return self._last_number

    def grant(self, numbers: Iterable[int]) -> None:
        """Count these messages as applied. A repeated or unknown number changes nothing."""
        self._is_granted = True
        self._remove(numbers)

    def reset(self) -> None:
        """Forget all unapplied messages, because their credits may be lost."""
        self._is_granted = False
        self._remove(list(self._unapplied))

    def _expire(self) -> None:
        oldest = next(iter(self._unapplied.values()), None)
        if oldest is not None and self._now() - oldest.since > CREDIT_TIMEOUT:
            self.reset()

    def _remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            applied = self._unapplied.pop(number, None)
            if applied is not None:
                self._bytes[applied.queue] -= applied.size
        self.changed.set()
