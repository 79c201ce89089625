"""A database that tells one time."""

from datetime import UTC, datetime


async def fixed_time() -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC)
