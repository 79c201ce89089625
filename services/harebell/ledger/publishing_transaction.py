"""Transactions that publish their tickets, wait for the confirms and then commit.

A crash before the commit leaves tickets without a row, which claim nothing.
No crash leaves a row without its ticket.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import asyncpg
import structlog

from harebell.messaging.publisher import OutgoingMessage, Publisher
from harebell.messaging.ticket_batches import TicketHeader
from harebell.messaging.ticket_messages import to_delay_queues
from harebell.runtime.clock import Clock, monotonic
from harebell.storage import metrics
from harebell.storage.engine import translate_db_errors

# An executor drops a ticket whose row is invisible for two seconds.
SLOW_COMMIT: Final = 1.0  # seconds after the first publish

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class PublishingTransaction:
    """An open transaction and the tickets that it has published before its commit."""

    connection: asyncpg.Connection
    publisher: Publisher
    clock: Clock
    _tickets: list[TicketHeader] = field(default_factory=list)
    _published_at: float | None = None

    def now(self) -> datetime:
        return self.clock.now()

    async def publish(
        self, tickets: Iterable[TicketHeader], messages: Sequence[OutgoingMessage] = ()
    ) -> None:
        """Publish the tickets and further messages, as the last step before the commit.

        Raise the errors of `Publisher.publish_all`.
        """
        headers = list(tickets)
        if self._published_at is None:
            self._published_at = monotonic()
        self._tickets += headers
        await self.publisher.publish_all([*to_delay_queues(headers, self.now()), *messages])

    @property
    def is_slow(self) -> bool:
        return self._published_at is not None and monotonic() - self._published_at > SLOW_COMMIT

    async def republish(self, reason: str) -> None:
        """Publish the tickets again and ignore failures, because the rescuer finds lost tickets."""
        if not self._tickets:
            return
        metrics.REPUBLISHED_TICKETS.labels(reason).inc(len(self._tickets))
        log.warning("tickets republished", reason=reason, tickets=len(self._tickets))
        await self.publisher.publish_each(to_delay_queues(self._tickets, self.now()))


@asynccontextmanager
async def publishing_transaction(
    pool: asyncpg.Pool, publisher: Publisher, clock: Clock
) -> AsyncIterator[PublishingTransaction]:
    """Open a transaction, commit it at the end and republish the tickets of a bad commit.

    A commit is bad if it takes more than `SLOW_COMMIT` seconds or if its result is unknown.
    Raise `DatabaseUnavailable` or `WriteConflict` for every error that a retry may avoid.
    """
    with translate_db_errors():
        async with pool.acquire() as connection:
            transaction = PublishingTransaction(
                connection=connection, publisher=publisher, clock=clock
            )
            is_committing = False
            try:
                async with connection.transaction():
                    yield transaction
                    is_committing = True
            except Exception:
                if is_committing:
                    await transaction.republish(metrics.UNKNOWN)
                raise
            if transaction.is_slow:
                await transaction.republish(metrics.SLOW)
