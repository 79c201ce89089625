"""Schedules by the million: the rows of a real one, copied with ids and timetables of their own."""

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

PORTION: Final = 500_000  # schedules of one transaction
TEAMS: Final = 1_000  # dealt out in turn: at a million, more of each than one page shows
GROUPS: Final = 50_000  # of owners, names and boxes: at a million, few of each
PAUSED: Final = 500
A_DAY_MS: Final = 86_400_000
MOST: Final = 10_000_019  # numbers; a prime, so that their places are as many
LEAP: Final = 7_654_321  # from one number's place to the next one's

_MADE: Final = """
CREATE TEMPORARY TABLE made (
    id uuid, key text, name text, owner text, tags text[], defined text, state text,
    next_at timestamptz, created_at timestamptz
) ON COMMIT DROP
"""
# What a row has of its own; all else is as in the row that is copied. The fingerprint too: it is
# only asked for when a schedule is put once more.
_OF_A_SCHEDULE: Final = {
    name: f"m.{name}" for name in ("id", "key", "name", "owner", "tags", "created_at")
}
_OF_A_VERSION: Final = {
    "schedule_id": "m.id",
    "definition": "(left(m.defined, -1) || ',' || substr(rest.definition, 2))::json",
    "run_spec": """('{"key":"' || m.key || '",' || substr(rest.run_spec, 2))::json""",
}
_OF_A_STATE: Final = {"schedule_id": "m.id", "next_at": "m.next_at", "state": "m.state"}
_REST: Final = """
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
    """When copies are due, from `soonest` after the acceptance of the one that is copied."""

    soonest: timedelta
    step: timedelta
    first: int | None = None  # they are due in the order of their numbers; None: shuffled

    def due(self, number: int, accepted_at: datetime) -> datetime:
        place = number * LEAP % MOST if self.first is None else number - self.first
        return accepted_at.replace(microsecond=0) + self.soonest + place * self.step


FAR: Final = Spread(timedelta(hours=1), timedelta(seconds=3))  # 347 days


@dataclass(frozen=True, slots=True)
class Copier:
    """`model`: the key of the schedule that is copied; no number is used twice."""

    connection: asyncpg.Connection  # as the database's owner
    tenant: str
    model: str
    when: Callable[[int, datetime], dict[str, str]] | None = None  # None: a mixture
    paused: int | None = PAUSED  # one in so many is paused

    async def multiply(self, numbers: range, spread: Spread = FAR) -> None:
        accepted_at = await self.accepted_at()
        for start in range(numbers.start, numbers.stop, PORTION):
            part = range(start, min(start + PORTION, numbers.stop))
            records = (self._record(number, accepted_at, spread) for number in part)
            async with self.connection.transaction():
                await self.connection.execute("SET LOCAL synchronous_commit = off")
                await self.connection.execute(_MADE)
                await self.connection.copy_records_to_table("made", records=records)
                for statement in _copies():
                    await self.connection.execute(statement, schedule_id(self.tenant, self.model))

    @asynccontextmanager
    async def unindexed(self) -> AsyncIterator[None]:
        """Indexes are built once at the end, for loads of very many. Nothing else may run."""
        found = await self.connection.fetch(_INDEXES)
        for row in found:
            await self.connection.execute(f"DROP INDEX {row['name']}")
        yield
        for row in found:
            await self.connection.execute(row["definition"])

    async def accepted_at(self) -> datetime:
        moment: datetime = await self.connection.fetchval(
            "SELECT accepted_at FROM schedule_versions WHERE schedule_id = $1",
            schedule_id(self.tenant, self.model),
        )
        return moment

    def id_of(self, number: int) -> UUID:
        return schedule_id(self.tenant, key_of(number))

    def _record(self, number: int, accepted_at: datetime, spread: Spread) -> tuple[Any, ...]:
        due = spread.due(number, accepted_at)
        is_paused = self.paused is not None and number % self.paused == self.paused - 1
        seen = {
            "key": key_of(number),
            "name": f"name-{number % GROUPS}",
            "owner": f"owner-{number % GROUPS}",
            "tags": [f"team-{number % TEAMS}", f"box-{number % GROUPS}"],
        }
        return (
            self.id_of(number),
            *seen.values(),
            orjson.dumps(seen | {"when": (self.when or timetable)(number, due)}).decode(),
            "paused" if is_paused else "active",
            None if is_paused else due,
            accepted_at + timedelta(milliseconds=number),
        )


def key_of(number: int) -> str:
    return f"bulk-{number}"


def once(_: int, due: datetime) -> dict[str, str]:
    return {"at": due.isoformat()}


def timetable(number: int, due: datetime) -> dict[str, str]:
    """No two of one spread are alike. Every tenth is a calendar: those are due at whole seconds."""
    if number % 10 == 0:
        return {"cron": f"{due.second} {due.minute} {due.hour} {due.day} {due.month} *"}
    if number % 2:
        return {"at": due.isoformat()}
    return {"every": f"{A_DAY_MS + number}ms", "start": due.isoformat()}


def _copies() -> Iterator[str]:
    yield _copy(schedules, "id", _OF_A_SCHEDULE)
    yield _copy(schedule_versions, "schedule_id", _OF_A_VERSION)
    yield _copy(schedule_state, "schedule_id", _OF_A_STATE)


def _copy(table: sqlalchemy.Table, id_: str, own: dict[str, str]) -> str:
    values = {column.name: own.get(column.name, f't."{column.name}"') for column in table.c}
    columns = ", ".join(f'"{name}"' for name in values)
    return (
        f"WITH rest AS MATERIALIZED ({_REST}) "  # noqa: S608  # names of our own
        f"INSERT INTO {table.name} ({columns}) SELECT {', '.join(values.values())} "
        f"FROM made m, rest, {table.name} t WHERE t.{id_} = $1 ORDER BY m.id"
    )
