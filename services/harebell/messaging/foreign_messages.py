"""Messages in a queue between services that no service has published."""

from typing import Protocol

import structlog

from harebell.domain.sender import FOREIGN_SENDER
from harebell.messaging import metrics

log = structlog.get_logger()


class SentMessage(Protocol):
    """The properties of a message that name its sender and its route."""

    @property
    def user_id(self) -> str | None: ...

    @property
    def exchange(self) -> str | None: ...

    @property
    def routing_key(self) -> str | None: ...


def refuse_foreign(queue: str, message: SentMessage) -> None:
    """Count and log a message whose sender is no service."""
    metrics.REFUSED_MESSAGES.labels(FOREIGN_SENDER).inc()
    log.warning(
        "message of no service refused",
        queue=queue,
        exchange=message.exchange,
        routing_key=message.routing_key,
        user_id=message.user_id,
    )
