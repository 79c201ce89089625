"""Immutable versions, read once: a cache before `schedule_versions`, and writing new ones."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import UUID

import asyncpg
from pydantic import ConfigDict

from harebell.contract.schedule import SchedulingPolicy, fingerprint_of
from harebell.contract.when import Recurring
from harebell.storage.runs import nullable_array
from harebell.ticker.model.version import Version, VersionHandover, VersionStatus

_VERSIONS: Final = """
SELECT v.schedule_id, v.version, v.run_spec->>'tenant' AS tenant, v.definition, v.run_spec,
       v.accepted_at, v.effective_at, v.anchor_at
FROM unnest($1::uuid[], $2::int[]) AS t(schedule_id, version)
JOIN schedule_versions v USING (schedule_id, version)
"""
_INSERT: Final = """
INSERT INTO schedule_versions (schedule_id, version, definition, run_spec, fingerprint, accepted_at,
                               effective_at, anchor_at, status, actor, note)
SELECT t.* FROM unnest($1::uuid[], $2::int[], $3::json[], $4::json[], $5::text[],
                       $6::timestamptz[], $7::timestamptz[], $8::timestamptz[], $9::text[],
                       $10::text[], $11::text[])
     AS t
"""
_SCHEDULES: Final = """
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
"""
_FATES: Final = """
UPDATE schedule_versions v SET status = t.status, status_reason = t.reason
FROM unnest($1::uuid[], $2::int[], $3::text[], $4::text[]) AS t(id, version, status, reason)
WHERE v.schedule_id = t.id AND v.version = t.version
"""
_TAKE_OVER: Final = """
UPDATE schedule_versions v SET planned_from = coalesce(t.planned_from, v.planned_from),
                               planned_until = coalesce(t.planned_until, v.planned_until)
FROM unnest($1::uuid[], $2::int[], $3::timestamptz[], $4::timestamptz[])
     AS t(id, version, planned_from, planned_until)
WHERE v.schedule_id = t.id AND v.version = t.version
"""


class VersionCache:
    """Immutable versions by (schedule, number), read once; bounded, oldest reading out first.

    Only of what recurs: a one-shot is planned once, and a crowd of them would push the others out.
    """

    MAX_VERSIONS: Final = 20_000
    MAX_CHARACTERS: Final = 32 * 1024 * 1024  # characters: their payloads, twice, are more in memory

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[UUID, int], Version] = OrderedDict()
        self._text = 0  # characters

    def __len__(self) -> int:
        return len(self._known)

    def add(self, versions: Iterable[Version]) -> None:
        for version in versions:
            if not isinstance(version.policy.when, Recurring):
                continue
            key = version.schedule_id, version.number
            if (before := self._known.pop(key, None)) is not None:
                self._text -= _length(before)
            self._known[key] = version
            self._text += _length(version)
        while len(self._known) > self.MAX_VERSIONS or self._text > self.MAX_CHARACTERS:
            _, oldest = self._known.popitem(last=False)  # a dict looks ever longer for its first
            self._text -= _length(oldest)

    async def load(
        self, connection: asyncpg.Connection, wanted: Sequence[tuple[UUID, int]]
    ) -> Mapping[tuple[UUID, int], Version]:
        found = {key: self._known[key] for key in wanted if key in self._known}
        missing = [key for key in wanted if key not in found]
        if missing:
            ids, numbers = zip(*missing, strict=True)
            rows = await connection.fetch(_VERSIONS, ids, numbers)
            read = {(row["schedule_id"], row["version"]): _version(row) for row in rows}
            self.add(read.values())
            found |= read
        return found


class _Read(SchedulingPolicy):
    """Of a definition that was checked when it was stored: the rest waits until it is wanted."""

    model_config = ConfigDict(extra="ignore")


def _length(version: Version) -> int:
    return len(version.definition_json) + len(version.run_spec)


def _version(row: asyncpg.Record) -> Version:
    return Version(
        row["schedule_id"],
        row["version"],
        row["tenant"],
        _Read.model_validate_json(row["definition"]),
        row["definition"],
        row["run_spec"],
        row["accepted_at"],
        row["effective_at"],
        anchor_at=row["anchor_at"],
    )


async def save_versions(
    connection: asyncpg.Connection, made: Sequence[tuple[Version, VersionStatus]]
) -> None:
    if not made:
        return
    versions = [version for version, _ in made]
    await connection.execute(
        _INSERT,
        [v.schedule_id for v in versions],
        [v.number for v in versions],
        [v.definition_json for v in versions],
        [v.run_spec for v in versions],
        [fingerprint_of(v.definition_json) for v in versions],
        [v.accepted_at for v in versions],
        [v.since for v in versions],
        nullable_array(v.anchor_at for v in versions),
        [fate.value for _, fate in made],
        nullable_array(v.actor for v in versions),
        nullable_array(v.note for v in versions),
    )


async def save_active_versions(connection: asyncpg.Connection, versions: Iterable[Version]) -> None:
    """What users see of schedules is the version in force; one row a schedule."""
    latest = list({version.schedule_id: version for version in versions}.values())
    if latest:
        await connection.execute(
            _SCHEDULES,
            [v.schedule_id for v in latest],
            [v.tenant for v in latest],
            [v.definition_json for v in latest],
            [v.definition.class_.value for v in latest],
            [v.policy.priority for v in latest],
            [v.policy.pool for v in latest],
            [v.number for v in latest],
            [v.accepted_at for v in latest],
            nullable_array(v.actor for v in latest),
        )


async def update_statuses(
    connection: asyncpg.Connection,
    fates: Mapping[tuple[UUID, int], tuple[VersionStatus, str | None]],
) -> None:
    """What became of versions that were to take effect later."""
    if fates:
        await connection.execute(
            _FATES,
            [schedule for schedule, _ in fates],
            [number for _, number in fates],
            [fate.value for fate, _ in fates.values()],
            nullable_array(reason for _, reason in fates.values()),
        )


async def record_handovers(
    connection: asyncpg.Connection, takeovers: Sequence[VersionHandover]
) -> None:
    """A version may take over and be taken over in one batch: both are one row to write."""
    begun = {(each.schedule_id, each.to_version): each.planned_from for each in takeovers}
    over = {(each.schedule_id, each.from_version): each.planned_until for each in takeovers}
    if keys := sorted(begun.keys() | over.keys()):
        await connection.execute(
            _TAKE_OVER,
            [schedule for schedule, _ in keys],
            [number for _, number in keys],
            nullable_array(begun.get(key) for key in keys),
            nullable_array(over.get(key) for key in keys),
        )
