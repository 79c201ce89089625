"""The amqp target: a message to an exchange of another service, confirmed and mandatory."""

from typing import Protocol

from aio_pika import DeliveryMode, Message

from harebell.contract.errors import Rejected, Transient
from harebell.contract.names import APP_ID
from harebell.contract.target import AmqpMessage
from harebell.executor.targets.attempt import Attempt
from harebell.executor.targets.outcome import Outcome, Success, excerpt
from harebell.kernel.retry import Failure


class Publish(Protocol):
    """Returns once the broker has confirmed; else raises, as `Link.publish` does."""

    async def __call__(
        self,
        exchange: str,
        routing_key: str,
        message: Message,
        *,
        timeout: float,  # noqa: ASYNC109  # the link's name for it
    ) -> None: ...


class AmqpTargets:
    """Wants a link that nothing else uses: a refused exchange closes its channel."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish

    async def call(self, message: AmqpMessage, attempt: Attempt, seconds: float) -> Outcome:
        """A missing queue or exchange is retried, as its service may be on its way up."""
        try:
            await self._publish(
                message.exchange, message.routing_key, _envelope(message, attempt), timeout=seconds
            )
        except Transient as error:
            return Failure(error.code, excerpt(error.reason))
        except Rejected as error:
            return Failure(error.code, excerpt(error.reason), retryable=False)
        return Success()


def _envelope(message: AmqpMessage, attempt: Attempt) -> Message:
    return Message(
        message.body() or b"",
        headers={**message.headers, **attempt.headers()},
        content_type=message.content_type(),
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=attempt.ticket.run_id,
        app_id=APP_ID,
    )
