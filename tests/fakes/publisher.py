"""A publisher without a broker, which records its messages and fails on request."""

from collections.abc import Callable, Iterator

from harebell.connection.amqp import PUBLISH_TIMEOUT
from harebell.contract.amqp_names import DELAY, DUE
from harebell.contract.errors import BrokerUnavailable
from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.messaging.ticket_batches import TicketHeader
from harebell.messaging.ticket_messages import TicketMessage


class FakePublisher(Publisher):
    """The publisher. `before_publish` runs before each ticket batch is recorded.

    The next `failures` ticket batches are not published.
    """

    def __init__(self) -> None:
        self.published: list[OutgoingMessage] = []
        self.failures = 0
        self.before_publish: Callable[[], None] = lambda: None

    async def publish(self, outgoing: OutgoingMessage, *, within: float = PUBLISH_TIMEOUT) -> None:  # noqa: ARG002  # as in the base class
        if outgoing.exchange in (DELAY, DUE):
            self.before_publish()
            if self.failures:
                self.failures -= 1
                raise BrokerUnavailable("The broker is away.")
        self.published.append(outgoing)

    @property
    def tickets(self) -> list[TicketHeader]:
        """The tickets of all batches, in the order of their publication."""
        return list(self._tickets())

    def _tickets(self) -> Iterator[TicketHeader]:
        for message in self.published:
            if isinstance(message, TicketMessage):
                yield from message.tickets
