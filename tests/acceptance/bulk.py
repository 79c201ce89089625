"""Copies of a schedule by the million, each with a separate id and separate times."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import asyncpg
import orjson
import sqlalchemy

from harebell.contract.ids import schedule_id
from harebell.storage.tables import schedule_state, schedule_versions, schedules

BATCH_SIZE: Final = 500_000  # schedules in one transaction
TEAMS: Final = (
    1_000  # assigned in rotation: of a million schedules, each has more than one page shows
)
GROUPS: Final = 50_000  # of owners, names and boxes: of a million schedules, each has few
PAUSED: Final = 500
DAY_MS: Final = 86_400_000
SHUFFLE_MODULUS: Final = (
    10_000_019  # a prime, so that each number below it gets a different position
)
SHUFFLE_STEP: Final = 7_654_321  # positions between two successive numbers

_COPIES_TABLE: Final = """
CREATE TEMPORARY TABLE made (
    id uuid, key text, name text, owner text, tags text[], defined text, state text,
    next_at timestamptz, created_at timestamptz
) ON COMMIT DROP
"""
# The columns that differ from the copied row. The fingerprint is also copied, because Harebell
# reads the fingerprint only when a schedule is put again.
_SCHEDULE_COLUMNS: Final = {
    name: f"m.{name}" for name in ("id", "key", "name", "owner", "tags", "created_at")
}
_VERSION_COLUMNS: Final = {
    "schedule_id": "m.id",
    "definition": "(left(m.defined, -1) || ',' || substr(rest.definition, 2))::json",
    "run_spec": """('{"key":"' || m.key || '",' || substr(rest.run_spec, 2))::json""",
}
_STATE_COLUMNS: Final = {"schedule_id": "m.id", "next_at": "m.next_at", "state": "m.state"}
_COMMON_COLUMNS: Final = """
SELECT (definition::jsonb - '{key,name,owner,tags,when}'::text[])::text AS definition,
       (run_spec::jsonb - 'key')::text AS run_spec
FROM schedule_versions WHERE schedule_id = $1
"""
_INDEXES: Final = """
SELECT indexname AS name, indexdef AS definition FROM pg_indexes
WHERE tablename IN ('schedules', 'schedule_versions', 'schedule_state')
  AND indexname NOT LIKE '%_pkey'
"""


@dataclass(frozen=True, slots=True)
class Spread:
    """Due times of copies, from `soonest` after the acceptance of the copied schedule."""

    soonest: timedelta
    step: timedelta
    first: int | None = (
        None  # the first number, for due times in the order of the numbers; None shuffles them
    )

    def due(self, number: int, accepted_at: datetime) -> datetime:
        position = (
            number * SHUFFLE_STEP % SHUFFLE_MODULUS if self.first is None else number - self.first
        )
        return accepted_at.replace(microsecond=0) + self.soonest + position * self.step


FAR: Final = Spread(timedelta(hours=1), timedelta(seconds=3))  # 347 days


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleCopier:
    """Writer of copies of the schedule with the key `model`. No number is used twice."""

    connection: asyncpg.Connection  # as the database's owner
    tenant: str
    model: str
    when: Callable[[int, datetime], dict[str, str]] | None = None  # None selects a mixture
    paused: int | None = PAUSED  # one of this number of schedules is paused

    async def create_copies(self, numbers: range, spread: Spread = FAR) -> None:
        accepted_at = await self.accepted_at()
        for start in range(numbers.start, numbers.stop, BATCH_SIZE):
            part = range(start, min(start + BATCH_SIZE, numbers.stop))
            records = (self._record(number, accepted_at, spread) for number in part)
            async with self.connection.transaction():
                await self.connection.execute("SET LOCAL synchronous_commit = off")
                await self.connection.execute(_COPIES_TABLE)
                await self.connection.copy_records_to_table("made", records=records)
                for statement in _copies():
                    await self.connection.execute(statement, schedule_id(self.tenant, self.model))

    @asynccontextmanager
    async def unindexed(self) -> AsyncIterator[None]:
        """Drop the indexes for the block and build them afterwards. No service may run."""
        found = await self.connection.fetch(_INDEXES)
        for row in found:
            await self.connection.execute(f"DROP INDEX {row['name']}")
        yield
        for row in found:
            await self.connection.execute(row["definition"])

    async def accepted_at(self) -> datetime:
        accepted_at: datetime = await self.connection.fetchval(
            "SELECT accepted_at FROM schedule_versions WHERE schedule_id = $1",
            schedule_id(self.tenant, self.model),
        )
        return accepted_at

    def id_of(self, number: int) -> UUID:
        return schedule_id(self.tenant, key_of(number))

    def _record(self, number: int, accepted_at: datetime, spread: Spread) -> tuple[Any, ...]:
        due = spread.due(number, accepted_at)
        is_paused = self.paused is not None and number % self.paused == self.paused - 1
        fields = {
            "key": key_of(number),
            "name": f"name-{number % GROUPS}",
            "owner": f"owner-{number % GROUPS}",
            "tags": [f"team-{number % TEAMS}", f"box-{number % GROUPS}"],
        }
        return (
            self.id_of(number),
            *fields.values(),
            orjson.dumps(fields | {"when": (self.when or mixed_times)(number, due)}).decode(),
            "paused" if is_paused else "active",
            None if is_paused else due,
            accepted_at + timedelta(milliseconds=number),
        )


def key_of(number: int) -> str:
    return f"bulk-{number}"


def one_shot(_: int, due: datetime) -> dict[str, str]:
    return {"at": due.isoformat()}


def mixed_times(number: int, due: datetime) -> dict[str, str]:
    """Return different times for each number.

    Each tenth schedule has a cron expression and is due at a whole second.
    """
    if number % 10 == 0:
        return {"cron": f"{due.second} {due.minute} {due.hour} {due.day} {due.month} *"}
    if number % 2:
        return {"at": due.isoformat()}
    return {"every": f"{DAY_MS + number}ms", "start": due.isoformat()}


def _copies() -> Iterator[str]:
    yield _copy(schedules, "id", _SCHEDULE_COLUMNS)
    yield _copy(schedule_versions, "schedule_id", _VERSION_COLUMNS)
    yield _copy(schedule_state, "schedule_id", _STATE_COLUMNS)


def _copy(table: sqlalchemy.Table, id_: str, copy_columns: dict[str, str]) -> str:
    values = {
        column.name: copy_columns.get(column.name, f't."{column.name}"') for column in table.c
    }
    columns = ", ".join(f'"{name}"' for name in values)
    return (
        f"WITH rest AS MATERIALIZED ({_COMMON_COLUMNS}) "  # noqa: S608  # names of our own
        f"INSERT INTO {table.name} ({columns}) SELECT {', '.join(values.values())} "
        f"FROM made m, rest, {table.name} t WHERE t.{id_} = $1 ORDER BY m.id"
    )
