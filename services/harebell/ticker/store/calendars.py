"""The SQL of calendars: their versions, and the schedules that use each calendar."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import asyncpg
import orjson

from harebell.contract.calendar import CalendarContent
from harebell.storage.runs import nullable_array
from harebell.ticker.model.calendars import CalendarKey, StoredCalendar
from harebell.ticker.model.version import Version

MAX_CALENDAR_VERSIONS: Final = 100  # of one calendar, the latest
MAX_DELETED_CALENDARS: Final = 100  # of one tenant, those deleted last


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarStatements:
    """The statements of this module."""

    load: str
    save: str
    delete_old: str
    forget_deleted: str
    find_schedules: str
    save_uses: str
    delete_uses: str


STATEMENTS: Final = CalendarStatements(
    load="""
SELECT DISTINCT ON (c.tenant, c.name) c.tenant, c.name, c.version, c.content, c.is_deleted,
       c.accepted_at, c.actor, c.note
FROM calendar_versions c WHERE c.tenant = ANY($1::text[])
ORDER BY c.tenant, c.name, c.version DESC
""",
    # A conflict fails the transaction, because another ticker has just changed the calendar.
    save="""
INSERT INTO calendar_versions (tenant, name, version, content, is_deleted, accepted_at, actor, note)
SELECT t.* FROM unnest($1::text[], $2::text[], $3::int[], $4::json[], $5::bool[],
                       $6::timestamptz[], $7::text[], $8::text[]) AS t
""",
    delete_old="""
DELETE FROM calendar_versions c USING unnest($1::text[], $2::text[], $3::int[])
    AS t(tenant, name, version)
WHERE c.tenant = t.tenant AND c.name = t.name AND c.version <= t.version
""",
    # A calendar that nobody remembers begins at version 1 again.
    forget_deleted="""
DELETE FROM calendar_versions c USING (
    SELECT tenant, name, is_deleted, row_number() OVER (
        PARTITION BY tenant, is_deleted ORDER BY accepted_at DESC, name) AS place
    FROM (SELECT DISTINCT ON (v.tenant, v.name) v.* FROM calendar_versions v
          WHERE v.tenant = ANY($1::text[]) ORDER BY v.tenant, v.name, v.version DESC) latest
) ranked
WHERE c.tenant = ranked.tenant AND c.name = ranked.name AND ranked.is_deleted
  AND ranked.place > $2
""",
    find_schedules="""
SELECT schedule_id FROM schedule_calendars WHERE tenant = $1 AND calendar = $2
ORDER BY schedule_id LIMIT $3
""",
    save_uses="""
INSERT INTO schedule_calendars (tenant, calendar, schedule_id)
SELECT t.* FROM unnest($1::text[], $2::text[], $3::uuid[]) AS t ON CONFLICT DO NOTHING
""",
    delete_uses="""
DELETE FROM schedule_calendars u USING unnest($1::text[], $2::text[], $3::uuid[])
    AS t(tenant, calendar, schedule_id)
WHERE u.tenant = t.tenant AND u.calendar = t.calendar AND u.schedule_id = t.schedule_id
""",
)


async def load_calendars(
    connection: asyncpg.Connection, tenants: Iterable[str]
) -> dict[CalendarKey, StoredCalendar]:
    """Return the latest version of each calendar of some tenants, with deleted calendars."""
    names = sorted(set(tenants))
    rows = await connection.fetch(STATEMENTS.load, names) if names else []
    calendars = [
        StoredCalendar(
            tenant=row["tenant"],
            name=row["name"],
            version=row["version"],
            content=CalendarContent.model_validate_json(row["content"]),
            accepted_at=row["accepted_at"],
            is_deleted=row["is_deleted"],
            actor=row["actor"],
            note=row["note"],
        )
        for row in rows
    ]
    return {each.key: each for each in calendars}


async def find_schedules_of_calendar(
    connection: asyncpg.Connection, key: CalendarKey, *, limit: int
) -> list[UUID]:
    """Return the schedules that use a calendar or used it before."""
    rows = await connection.fetch(STATEMENTS.find_schedules, *key, limit)
    return [row["schedule_id"] for row in rows]


async def save_calendars(
    connection: asyncpg.Connection, calendars: Sequence[StoredCalendar]
) -> None:
    """Insert new versions of calendars.

    Remove versions beyond `MAX_CALENDAR_VERSIONS`, and calendars that were deleted before the last
    `MAX_DELETED_CALENDARS` ones of their tenant.
    """
    if not calendars:
        return
    tenants, names = [each.tenant for each in calendars], [each.name for each in calendars]
    await connection.execute(
        STATEMENTS.save,
        tenants,
        names,
        [each.version for each in calendars],
        [orjson.dumps(each.content.to_json()).decode() for each in calendars],
        [each.is_deleted for each in calendars],
        [each.accepted_at for each in calendars],
        nullable_array(each.actor for each in calendars),
        nullable_array(each.note for each in calendars),
    )
    oldest = [each.version - MAX_CALENDAR_VERSIONS for each in calendars]
    await connection.execute(STATEMENTS.delete_old, tenants, names, oldest)
    if deleting := sorted({each.tenant for each in calendars if each.is_deleted}):
        await connection.execute(STATEMENTS.forget_deleted, deleting, MAX_DELETED_CALENDARS)


async def save_uses(connection: asyncpg.Connection, versions: Iterable[Version]) -> None:
    """Record the calendars of new versions, so that a change of a calendar finds the schedules."""
    uses = sorted(
        {
            (each.tenant, calendar.name, each.schedule_id)
            for each in versions
            for calendar in each.policy.pinned_calendars
        }
    )
    if uses:
        await connection.execute(STATEMENTS.save_uses, *map(list, zip(*uses, strict=True)))


async def delete_uses(
    connection: asyncpg.Connection, uses: Iterable[tuple[str, str, UUID]]
) -> None:
    """Remove the records of schedules that no longer use a calendar."""
    ordered = sorted(set(uses))
    if ordered:
        await connection.execute(STATEMENTS.delete_uses, *map(list, zip(*ordered, strict=True)))
