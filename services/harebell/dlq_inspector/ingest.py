"""Keeping: every message of the dead-letter queue becomes rows, and is acknowledged after them."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
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
from harebell.messaging.acknowledge import DONE, Delivery, Outcome
from harebell.runtime.clock import Clock
from harebell.storage.engine import translate_db_errors

COUNT_EVERY: Final = 15.0  # seconds

log = structlog.get_logger()


async def run_open_count(pool: asyncpg.Pool) -> None:
    """Of the letters that wait for a person, whoever kept or closed them. Until cancelled."""
    for kind in DeadLetterKind:
        metrics.DEAD_LETTERS.labels(kind.value)  # a rate is blind to the first of a new series
    while True:
        try:
            with translate_db_errors():
                metrics.DEAD_LETTERS_OPEN.set(await dead_letters.count_open(pool))
        except Transient as error:
            log.warning("dead letters not counted", reason=error.reason)
        await asyncio.sleep(COUNT_EVERY)


class Ingester:
    """Refuses nothing: a dead letter of a dead letter would come back here for ever."""

    def __init__(self, pool: asyncpg.Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock

    async def ingest(self, deliveries: Sequence[Delivery]) -> Sequence[Outcome]:
        now = self._clock.now()
        arrivals = [_arrival(delivery) for delivery in deliveries]
        try:
            await self._write(
                letter for arrival in arrivals for letter in dead_letters_of(arrival, now)
            )
        except asyncpg.PostgresError as error:
            if len(arrivals) > 1:
                raise  # they come again one by one
            log.warning("dead letter kept as it is", error=str(error))
            await self._write_plainly(raw_dead_letter(arrivals[0], now))
        return [DONE] * len(deliveries)

    async def _write_plainly(self, letter: DeadLetter) -> None:
        """Raises `DatabaseUnavailable` whatever is wrong: held, it is not forwarded to itself."""
        try:
            await self._write([letter])
        except asyncpg.PostgresError as error:
            raise DatabaseUnavailable(f"cannot keep a dead letter: {error}") from error

    async def _write(self, written: Iterable[DeadLetter]) -> None:
        with translate_db_errors():
            async with self._pool.acquire() as connection:
                kept = await dead_letters.insert_dead_letters(connection, written)
        for kind, number in Counter(letter.kind for letter in kept).items():
            metrics.DEAD_LETTERS.labels(kind.value).inc(number)
            log.info("dead letters kept", kind=kind.value, number=number)


def _arrival(delivery: Delivery) -> IncomingDeadLetter:
    return IncomingDeadLetter(
        body=delivery.body,
        type=delivery.message.type,
        routing_key=delivery.routing_key,
        message_id=delivery.message_id,
        headers=delivery.message.headers or {},
    )
