"""Alert posts: the alerts that the webhook has not confirmed, and those of the last hour.

A row keeps its alert across restarts of the dlq_inspector, however long the chat is unavailable.
A delivered row remains for an hour, so that a repeated alert is posted once.
"""

from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Final

import asyncpg

from harebell.contract.events import Event
from harebell.contract.json_codec import encode

MAX_PENDING: Final = 1_000  # unconfirmed alerts; the oldest further ones are dropped
MAX_DELIVERED: Final = 1_000  # confirmed alerts that a repetition is compared with
MAX_AGE: Final = timedelta(hours=24)  # of an unconfirmed alert, which is given up afterwards
TRY_LEASE: Final = timedelta(seconds=30)  # until another process may post a taken alert
_LOCK_KEY: Final = 0x616C657274  # of the advisory lock for insertions


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertPostStatements:
    """The statements of this module."""

    lock: str
    store: str
    drop_oldest: str
    take: str
    confirm: str
    postpone: str
    give_up: str
    forget: str


STATEMENTS: Final = AlertPostStatements(
    lock="SELECT pg_advisory_xact_lock($1)",
    # $4 is true for an alert whose publisher does not repeat it, so that only its id identifies it.
    store="""
INSERT INTO alert_posts (event_key, alert_key, event)
SELECT $1, $2, $3::json
WHERE $4 OR NOT EXISTS (
    SELECT FROM alert_posts
    WHERE alert_key = $2 AND (delivered_at IS NULL OR delivered_at > now() - $5::interval)
)
ON CONFLICT (event_key) DO NOTHING
""",
    drop_oldest="""
DELETE FROM alert_posts WHERE event_key IN (
    SELECT event_key FROM alert_posts WHERE delivered_at IS NULL
    ORDER BY created_at DESC, event_key OFFSET $1
)
RETURNING event_key
""",
    take="""
UPDATE alert_posts SET tries = tries + 1, next_try_at = now() + $1::interval
WHERE event_key = (
    SELECT event_key FROM alert_posts WHERE delivered_at IS NULL AND next_try_at <= now()
    ORDER BY next_try_at, event_key LIMIT 1 FOR UPDATE SKIP LOCKED
)
RETURNING event_key, event::text AS event, tries
""",
    confirm="UPDATE alert_posts SET delivered_at = now() WHERE event_key = $1",
    postpone="UPDATE alert_posts SET next_try_at = now() + $2::interval WHERE event_key = $1",
    give_up="""
DELETE FROM alert_posts WHERE delivered_at IS NULL AND created_at < now() - $1::interval
RETURNING event_key
""",
    forget="""
DELETE FROM alert_posts
WHERE delivered_at < now() - $1::interval OR event_key IN (
    SELECT event_key FROM alert_posts WHERE delivered_at IS NOT NULL
    ORDER BY delivered_at DESC, event_key OFFSET $2
)
""",
)


@dataclass(frozen=True, slots=True)
class TakenAlert:
    """An alert that this process posts now. `tries` counts this try."""

    key: str
    event: bytes
    tries: int


async def store(
    pool: asyncpg.Pool, event: Event, *, is_unique: bool, repeat_after: timedelta
) -> int:
    """Store the alert unless it repeats a pending or recent one. Return the dropped alerts.

    The publisher of a unique alert does not repeat the alert while its condition lasts.
    """
    async with pool.acquire() as connection, connection.transaction():
        await connection.execute(STATEMENTS.lock, _LOCK_KEY)
        await connection.execute(
            STATEMENTS.store,
            _digest(event.source, event.id),
            _digest(event.source, event.type, event.subject),
            encode(event).decode(),
            is_unique,
            repeat_after,
        )
        return len(await connection.fetch(STATEMENTS.drop_oldest, MAX_PENDING))


async def take(pool: asyncpg.Pool) -> TakenAlert | None:
    """Take the alert whose next try is due for the longest time. No other process takes it."""
    row = await pool.fetchrow(STATEMENTS.take, TRY_LEASE)
    return (
        None if row is None else TakenAlert(row["event_key"], row["event"].encode(), row["tries"])
    )


async def confirm(pool: asyncpg.Pool, alert: TakenAlert) -> None:
    await pool.execute(STATEMENTS.confirm, alert.key)


async def postpone(pool: asyncpg.Pool, alert: TakenAlert, pause: timedelta) -> None:
    await pool.execute(STATEMENTS.postpone, alert.key, pause)


async def clean_up(pool: asyncpg.Pool, *, repeat_after: timedelta) -> int:
    """Delete old confirmed alerts, and unconfirmed ones after `MAX_AGE`. Return the latter."""
    await pool.execute(STATEMENTS.forget, repeat_after, MAX_DELIVERED)
    return len(await pool.fetch(STATEMENTS.give_up, MAX_AGE))


def _digest(*parts: str) -> str:
    """Return a key of constant length, because the texts of an event have no bound."""
    return sha256("\n".join(parts).encode()).hexdigest()
