"""Statements on single partitions of the ledger, instead of on all of them.

A generic plan locks every partition of its tables, and a join visits each of them for each row.
"""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any, Final

import asyncpg

from harebell.storage.runs import Keyed

MAX_TEXTS: Final = 256  # statements for a day that a process keeps
_TABLE: Final = re.compile(r"\b(runs|attempts)\b")


@lru_cache(maxsize=MAX_TEXTS)
def on_day(statement: str, day: date) -> str:
    """Return the statement on the partitions of one day."""
    return _TABLE.sub(rf"\1_{day:%Y%m%d}", statement)


def partition_at(time: datetime) -> str:
    """Return the name of the partition of the runs that are scheduled for the day of a time."""
    return on_day("runs", _day(time))


async def fetch_on_day(
    pool: asyncpg.Pool,
    statement: str,
    *parameters: Any,  # noqa: ANN401  # of asyncpg
    rows: Sequence[Keyed],
) -> list[asyncpg.Record]:
    """Return the result of a statement on these rows of runs, at least one and in key order.

    The statement uses only the partitions of their day. It uses every partition for rows of several
    days, or of a day before the first one of the ledger.
    """
    first, last = _day(rows[0].key.scheduled_for), _day(rows[-1].key.scheduled_for)
    of_day = on_day(statement, first) if first == last else statement
    try:
        found: list[asyncpg.Record] = await pool.fetch(of_day, *parameters)
    except asyncpg.UndefinedTableError:
        found = await pool.fetch(statement, *parameters)
    return found


async def fetch_in(
    pool: asyncpg.Pool,
    statement: str,
    *parameters: Any,  # noqa: ANN401  # of asyncpg
    partitions: frozenset[str],
) -> list[asyncpg.Record]:
    """Return the rows of a query of `runs`, only from these partitions if all of them exist.

    No partitions stand for all of them.
    """
    parts = " UNION ALL ".join(f"SELECT * FROM {name}" for name in sorted(partitions))
    of_parts = _TABLE.sub(f"({parts}) AS runs", statement) if partitions else statement
    try:
        found: list[asyncpg.Record] = await pool.fetch(of_parts, *parameters)
    except asyncpg.UndefinedTableError:
        found = await pool.fetch(statement, *parameters)
    return found


def _day(time: datetime) -> date:
    return time.astimezone(UTC).date()
