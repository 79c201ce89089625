"""The SQL of versions and of the calendars that they pin, and a cache of immutable versions."""

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import asyncpg
import orjson

from harebell.contract.calendar import CalendarContent
from harebell.contract.schedule import fingerprint_of
from harebell.contract.when import Recurring
from harebell.domain.timetables import StoredPolicy
from harebell.runtime.clock import monotonic
from harebell.storage.runs import nullable_array
from harebell.ticker.model.version import (
    CalendarKey,
    StoredCalendar,
    Version,
    VersionHandover,
    VersionStatus,
)

MAX_CALENDAR_VERSIONS: Final = 100  # of one calendar, the latest
MAX_DELETED_CALENDARS: Final = 100  # of one tenant, those deleted last


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionStatements:
    """The statements of this module."""

    load: str
    save_versions: str
    save_active_versions: str
    update_statuses: str
    record_handovers: str
    load_calendars: str
    save_calendars: str
    delete_old_calendars: str
    forget_deleted_calendars: str
    find_schedules_of_calendar: str
    save_calendar_uses: str
    delete_calendar_uses: str


STATEMENTS: Final = VersionStatements(
    load="""
SELECT v.schedule_id, v.version, v.run_spec->>'tenant' AS tenant, v.definition, v.run_spec,
       v.accepted_at, v.effective_at, v.anchor_at
FROM unnest($1::uuid[], $2::int[]) AS t(schedule_id, version)
JOIN schedule_versions v USING (schedule_id, version)
""",
    save_versions="""
INSERT INTO schedule_versions (schedule_id, version, definition, run_spec, fingerprint,
                               accepted_at, effective_at, anchor_at, status, actor, note)
SELECT t.* FROM unnest($1::uuid[], $2::int[], $3::json[], $4::json[], $5::text[],
                       $6::timestamptz[], $7::timestamptz[], $8::timestamptz[], $9::text[],
                       $10::text[], $11::text[])
     AS t
""",
    save_active_versions="""
INSERT INTO schedules (id, tenant, key, name, owner, class, priority, pool, tags, metadata,
                       version, created_at, updated_at, actor)
SELECT t.id, t.tenant, d->>'key', d->>'name', d->>'owner', t.class, t.priority, t.pool,
       ARRAY(SELECT json_array_elements_text(d->'tags')),
       coalesce((d->'metadata')::jsonb, '{}'), t.version, t.at, t.at, t.actor
FROM unnest($1::uuid[], $2::text[], $3::json[], $4::text[], $5::smallint[], $6::text[],
            $7::int[], $8::timestamptz[], $9::text[])
     AS t(id, tenant, d, class, priority, pool, version, at, actor)
ON CONFLICT (id) DO UPDATE SET
    name = excluded.name, owner = excluded.owner, class = excluded.class,
    priority = excluded.priority, pool = excluded.pool, tags = excluded.tags,
    metadata = excluded.metadata, version = excluded.version,
    updated_at = excluded.updated_at, actor = excluded.actor
""",
    update_statuses="""
UPDATE schedule_versions v SET status = t.status, status_reason = t.reason
FROM unnest($1::uuid[], $2::int[], $3::text[], $4::text[]) AS t(id, version, status, reason)
WHERE v.schedule_id = t.id AND v.version = t.version
""",
    record_handovers="""
UPDATE schedule_versions v SET planned_from = coalesce(t.planned_from, v.planned_from),
                               planned_until = coalesce(t.planned_until, v.planned_until)
FROM unnest($1::uuid[], $2::int[], $3::timestamptz[], $4::timestamptz[])
     AS t(id, version, planned_from, planned_until)
WHERE v.schedule_id = t.id AND v.version = t.version
""",
    load_calendars="""
SELECT DISTINCT ON (c.tenant, c.name) c.tenant, c.name, c.version, c.content, c.is_deleted,
       c.accepted_at, c.actor, c.note
FROM calendar_versions c WHERE c.tenant = ANY($1::text[])
ORDER BY c.tenant, c.name, c.version DESC
""",
    # A conflict fails the transaction, because another ticker has just changed the calendar.
    save_calendars="""
INSERT INTO calendar_versions (tenant, name, version, content, is_deleted, accepted_at, actor, note)
SELECT t.* FROM unnest($1::text[], $2::text[], $3::int[], $4::json[], $5::bool[],
                       $6::timestamptz[], $7::text[], $8::text[]) AS t
""",
    delete_old_calendars="""
DELETE FROM calendar_versions c USING unnest($1::text[], $2::text[], $3::int[])
    AS t(tenant, name, version)
WHERE c.tenant = t.tenant AND c.name = t.name AND c.version <= t.version
""",
    # A calendar that nobody remembers begins at version 1 again.
    forget_deleted_calendars="""
DELETE FROM calendar_versions c USING (
    SELECT tenant, name, is_deleted, row_number() OVER (
        PARTITION BY tenant, is_deleted ORDER BY accepted_at DESC, name) AS place
    FROM (SELECT DISTINCT ON (v.tenant, v.name) v.* FROM calendar_versions v
          WHERE v.tenant = ANY($1::text[]) ORDER BY v.tenant, v.name, v.version DESC) latest
) ranked
WHERE c.tenant = ranked.tenant AND c.name = ranked.name AND ranked.is_deleted
  AND ranked.place > $2
""",
    find_schedules_of_calendar="""
SELECT schedule_id FROM schedule_calendars WHERE tenant = $1 AND calendar = $2
ORDER BY schedule_id LIMIT $3
""",
    save_calendar_uses="""
INSERT INTO schedule_calendars (tenant, calendar, schedule_id)
SELECT t.* FROM unnest($1::text[], $2::text[], $3::uuid[]) AS t ON CONFLICT DO NOTHING
""",
    delete_calendar_uses="""
DELETE FROM schedule_calendars u USING unnest($1::text[], $2::text[], $3::uuid[])
    AS t(tenant, calendar, schedule_id)
WHERE u.tenant = t.tenant AND u.calendar = t.calendar AND u.schedule_id = t.schedule_id
""",
)


class VersionCache:
    """A bounded cache of versions by schedule and number. The oldest entry leaves first.

    One-shot schedules are left out, because the ticker plans them only once and large numbers of
    them would remove the other versions.

    Entries are valid for `MAX_AGE`. Retention removes a schedule at least one day after its end,
    and the next schedule with its key begins with version 1 again.
    """

    MAX_AGE: Final = 3600.0  # seconds

    MAX_VERSIONS: Final = 20_000
    MAX_CHARACTERS: Final = 32 * 1024 * 1024  # parsed versions need about twice this memory

    def __init__(self) -> None:
        # A plain dict needs longer for its first entry after each removal.
        self._versions: OrderedDict[tuple[UUID, int], Version] = OrderedDict()
        self._times: dict[tuple[UUID, int], float] = {}
        self._characters = 0

    def __len__(self) -> int:
        return len(self._versions)

    def add(self, versions: Iterable[Version]) -> None:
        """Add the recurring versions, and remove the oldest versions beyond the bounds."""
        for version in versions:
            if not isinstance(version.policy.when, Recurring):
                continue
            key = version.schedule_id, version.number
            if (before := self._versions.pop(key, None)) is not None:
                self._characters -= _length(before)
            self._versions[key] = version
            self._times[key] = monotonic()
            self._characters += _length(version)
        while len(self._versions) > self.MAX_VERSIONS or self._characters > self.MAX_CHARACTERS:
            key, oldest = self._versions.popitem(last=False)
            del self._times[key]
            self._characters -= _length(oldest)

    async def load(
        self, connection: asyncpg.Connection, keys: Sequence[tuple[UUID, int]]
    ) -> Mapping[tuple[UUID, int], Version]:
        """Return the versions by key, and read those that are not in the cache."""
        since = monotonic() - self.MAX_AGE
        found = {
            key: self._versions[key] for key in keys if self._times.get(key, -math.inf) > since
        }
        missing = [key for key in keys if key not in found]
        if missing:
            ids, numbers = zip(*missing, strict=True)
            rows = await connection.fetch(STATEMENTS.load, ids, numbers)
            loaded = {(row["schedule_id"], row["version"]): _version(row) for row in rows}
            self.add(loaded.values())
            found |= loaded
        return found


def _length(version: Version) -> int:
    return len(version.definition_json) + len(version.run_spec)


def _version(row: asyncpg.Record) -> Version:
    return Version(
        schedule_id=row["schedule_id"],
        number=row["version"],
        tenant=row["tenant"],
        policy=StoredPolicy.model_validate_json(row["definition"]),
        definition_json=row["definition"],
        run_spec=row["run_spec"],
        accepted_at=row["accepted_at"],
        effective_at=row["effective_at"],
        anchor_at=row["anchor_at"],
    )


async def save_versions(
    connection: asyncpg.Connection, new_versions: Sequence[tuple[Version, VersionStatus]]
) -> None:
    """Insert new versions. Raise `UniqueViolationError` if a number exists already."""
    if not new_versions:
        return
    versions = [version for version, _ in new_versions]
    await connection.execute(
        STATEMENTS.save_versions,
        [each.schedule_id for each in versions],
        [each.number for each in versions],
        [each.definition_json for each in versions],
        [each.run_spec for each in versions],
        [fingerprint_of(each.definition_json) for each in versions],
        [each.accepted_at for each in versions],
        [each.since for each in versions],
        nullable_array(each.anchor_at for each in versions),
        [status.value for _, status in new_versions],
        nullable_array(each.actor for each in versions),
        nullable_array(each.note for each in versions),
    )


async def save_active_versions(connection: asyncpg.Connection, versions: Iterable[Version]) -> None:
    """Write the versions in force to `schedules`, which has one row for each schedule."""
    latest = list({each.schedule_id: each for each in versions}.values())
    if latest:
        await connection.execute(
            STATEMENTS.save_active_versions,
            [each.schedule_id for each in latest],
            [each.tenant for each in latest],
            [each.definition_json for each in latest],
            [each.definition.class_.value for each in latest],
            [each.policy.priority for each in latest],
            [each.policy.pool for each in latest],
            [each.number for each in latest],
            [each.accepted_at for each in latest],
            nullable_array(each.actor for each in latest),
        )


async def update_statuses(
    connection: asyncpg.Connection,
    statuses: Mapping[tuple[UUID, int], tuple[VersionStatus, str | None]],
) -> None:
    """Write the status and its reason of each version."""
    if statuses:
        await connection.execute(
            STATEMENTS.update_statuses,
            [schedule_id for schedule_id, _ in statuses],
            [number for _, number in statuses],
            [status.value for status, _ in statuses.values()],
            nullable_array(reason for _, reason in statuses.values()),
        )


async def record_handovers(
    connection: asyncpg.Connection, handovers: Sequence[VersionHandover]
) -> None:
    """Write the times that each version decided.

    A version may be the new and the old one of two handovers, which are written to one row.
    """
    planned_from = {(each.schedule_id, each.to_version): each.planned_from for each in handovers}
    until = {(each.schedule_id, each.from_version): each.planned_until for each in handovers}
    if keys := sorted(planned_from.keys() | until.keys()):
        await connection.execute(
            STATEMENTS.record_handovers,
            [schedule_id for schedule_id, _ in keys],
            [number for _, number in keys],
            nullable_array(planned_from.get(key) for key in keys),
            nullable_array(until.get(key) for key in keys),
        )


async def load_calendars(
    connection: asyncpg.Connection, tenants: Iterable[str]
) -> dict[CalendarKey, StoredCalendar]:
    """Return the latest version of each calendar of some tenants, with deleted calendars."""
    names = sorted(set(tenants))
    rows = await connection.fetch(STATEMENTS.load_calendars, names) if names else []
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
    rows = await connection.fetch(STATEMENTS.find_schedules_of_calendar, *key, limit)
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
        STATEMENTS.save_calendars,
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
    await connection.execute(STATEMENTS.delete_old_calendars, tenants, names, oldest)
    if deleting := sorted({each.tenant for each in calendars if each.is_deleted}):
        await connection.execute(
            STATEMENTS.forget_deleted_calendars, deleting, MAX_DELETED_CALENDARS
        )


async def save_calendar_uses(connection: asyncpg.Connection, versions: Iterable[Version]) -> None:
    """Record the calendars of new versions, so that a change of a calendar finds the schedules."""
    uses = sorted(
        {
            (each.tenant, calendar.name, each.schedule_id)
            for each in versions
            for calendar in each.policy.pinned_calendars
        }
    )
    if uses:
        await connection.execute(STATEMENTS.save_calendar_uses, *map(list, zip(*uses, strict=True)))


async def delete_calendar_uses(
    connection: asyncpg.Connection, uses: Iterable[tuple[str, str, UUID]]
) -> None:
    """Remove the records of schedules that no longer use a calendar."""
    ordered = sorted(set(uses))
    if ordered:
        await connection.execute(
            STATEMENTS.delete_calendar_uses, *map(list, zip(*ordered, strict=True))
        )
