"""Ingestion: each dead-lettered message is stored before its acknowledgement."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import asyncpg
import structlog

from harebell.contract.errors import DatabaseUnavailable, Transient
from harebell.dlq_inspector import metrics
from harebell.dlq_inspector.model.dead_letter import (
    DeadLetter,
    DeadLetterKind,
    IncomingDeadLetter,
    dead_letters_of,
    raw_dead_letter,
)
from harebell.dlq_inspector.store import dead_letters
from harebell.messaging.acknowledge import DONE, DeadLettered, Delivery, Outcome
from harebell.messaging.received_message import ReceivedMessage
from harebell.messaging.topology.bus import is_undelivered_queue
from harebell.runtime.clock import Clock
from harebell.storage.engine import translate_db_errors

OPEN_COUNT_INTERVAL: Final = 15.0  # seconds
NOT_STORABLE: Final = "not_storable"

log = structlog.get_logger()


class Ingester:
    """The handler of dead-lettered messages.

    A dead letter that the database rejects in every form is dead-lettered, and so parked.
    `is_trusted` returns whether a service has published a message, and `owner_of` the tenant of a
    queue of what the queues of one owner dead-letter.
    """

    def __init__(
        self,
        *,
        pool: asyncpg.Pool,
        clock: Clock,
        is_trusted: Callable[[ReceivedMessage], bool] = lambda _: True,
        owner_of: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self._owner_of = owner_of
        self._is_trusted = is_trusted
        self._pool = pool
        self._clock = clock

    async def ingest(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        """Store the dead letters of the deliveries in one transaction.

        Raise `DatabaseUnavailable` while the database is unavailable.
        Store a message raw if PostgreSQL rejects its dead letters, or else report it as dead.
        """
        now = self._clock.now()
        messages = [self._incoming(delivery) for delivery in deliveries]
        try:
            await self._insert(
                dead_letter for each in messages for dead_letter in dead_letters_of(each, now)
            )
        except asyncpg.PostgresError as error:
            if len(messages) > 1:
                raise  # the worker then handles each delivery alone
            log.warning("dead letter stored raw", error=str(error))
            return [await self._insert_raw(raw_dead_letter(messages[0], now))]
        return [DONE] * len(deliveries)

    def _incoming(self, delivery: Delivery) -> IncomingDeadLetter:
        message = delivery.message
        is_request = is_undelivered_queue(delivery.queue)
        return IncomingDeadLetter(
            body=delivery.body,
            type=message.type,
            routing_key=delivery.routing_key,
            message_id=delivery.message_id,
            user_id=message.user_id,
            headers=message.headers,
            is_trusted=not is_request and self._is_trusted(message),
            owner=self._owner_of(delivery.queue),
        )

    async def _insert_raw(self, dead_letter: DeadLetter) -> Outcome:
        try:
            await self._insert([dead_letter])
        except asyncpg.SyntaxOrAccessError as error:  # such as a migration that has not run
            raise DatabaseUnavailable(f"The database rejects a dead letter: {error}") from error
        except asyncpg.PostgresError as error:
            return DeadLettered(NOT_STORABLE, str(error))
        return DONE

    async def _insert(self, incoming: Iterable[DeadLetter]) -> None:
        with translate_db_errors():
            async with self._pool.acquire() as connection:
                inserted = await dead_letters.insert_dead_letters(connection, incoming)
        report_conflicts(inserted.conflicts)
        for kind, count in Counter(dead_letter.kind for dead_letter in inserted.new).items():
            metrics.DEAD_LETTERS.labels(kind.value).inc(count)
            log.info("dead letters stored", kind=kind.value, count=count)


def report_conflicts(conflicts: Iterable[DeadLetter]) -> None:
    """Count and log the dead letters whose id or run belongs to another tenant."""
    for each in conflicts:
        metrics.DEAD_LETTER_CONFLICTS.inc()
        log.warning(
            "dead letter conflicts with another tenant", id=str(each.id), tenant=each.tenant
        )


async def run_open_count(pool: asyncpg.Pool) -> None:
    """Set the metric of open dead letters regularly until the task is cancelled."""
    for kind in DeadLetterKind:
        metrics.DEAD_LETTERS.labels(kind.value)  # a rate ignores the first value of a new series
    while True:
        try:
            with translate_db_errors():
                metrics.DEAD_LETTERS_OPEN.set(await dead_letters.count_open(pool))
        except Transient as error:
            log.warning("open dead letter count failed", reason=error.reason)
        await asyncio.sleep(OPEN_COUNT_INTERVAL)
