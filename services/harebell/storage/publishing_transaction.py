"""Authorising work: published, confirmed, as the last step of a transaction, which then commits.

A crash in between leaves tickets that no row honours, never a row without its ticket.
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

SLOW_COMMIT: Final = 1.0  # seconds since the tickets went out; after two they count as phantoms

log = structlog.get_logger()


@dataclass(slots=True)
class PublishingTransaction:
    """A transaction under way, and the tickets that it has sent ahead of its commit."""

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
        """To be the last step before the commit. Raises what `publish_all` does."""
        sent = list(tickets)
        if self._published_at is None:
            self._published_at = monotonic()
        self._tickets += sent
        await self.publisher.publish_all([*to_delay_queues(sent, self.now()), *messages])

    @property
    def is_slow(self) -> bool:
        return self._published_at is not None and monotonic() - self._published_at > SLOW_COMMIT

    async def republish(self, reason: str) -> None:
        """A hint like any ticket: what cannot be published now, a sweep finds."""
        if not self._tickets:
            return
        metrics.REPUBLISHED_TICKETS.labels(reason).inc(len(self._tickets))
        log.warning("published again", commit=reason, runs=len(self._tickets))
        await self.publisher.publish_each(to_delay_queues(self._tickets, self.now()))


@asynccontextmanager
async def publishing_transaction(
    pool: asyncpg.Pool, publisher: Publisher, clock: Clock
) -> AsyncIterator[PublishingTransaction]:
    """A transaction that publishes. Raises `DatabaseUnavailable` for what may pass.

    Executors drop a ticket whose row they do not find for two seconds. So when the commit was slow,
    or nobody knows whether there was one, the tickets are published again.
    """
    with translate_db_errors():
        async with pool.acquire() as connection:
            transaction = PublishingTransaction(connection, publisher, clock)
            is_committing = False
            try:
                async with connection.transaction():
                    yield transaction
                    is_committing = True
            except Exception:
                if is_committing:
                    await transaction.republish("unknown")
                raise
            if transaction.is_slow:
                await transaction.republish("slow")
