"""The statements about breakers, overlap slots and labels, for which due runs wait."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import asyncpg

from harebell.audit.model.records import Window
from harebell.audit.model.waits import (
    MAX_UNCHANGED,
    BreakerRow,
    DeferredRange,
    LabelWait,
    OverlapWait,
    Waits,
)
from harebell.audit.store import FIRST_STAGED_AT
from harebell.contract.breakers import BreakerState
from harebell.contract.downstream import downstream_of_json
from harebell.contract.ids import RunKey
from harebell.contract.json_codec import decode_trusted

MAX_ENDED: Final = 100_000  # deferrals that ended within the window
MAX_RUNNING: Final = 10_000  # running versions whose downstreams are probed

_ENDED: Final = """
SELECT tenant, downstream, since, until FROM (
    SELECT NULL AS tenant, downstream, since, until FROM breaker_deferrals WHERE until > $1
    UNION ALL
    SELECT tenant, downstream, since, until FROM tenant_breaker_deferrals WHERE until > $1
) AS ended
ORDER BY until DESC LIMIT $2
"""
_BREAKERS: Final = """
SELECT NULL AS tenant, b.downstream, b.state, b.since, b.forced, b.forced_at, b.forced_until,
       d.since AS deferring_since
FROM breakers b LEFT JOIN breaker_deferrals d ON d.downstream = b.downstream AND d.until IS NULL
WHERE coalesce(b.forced, b.state) <> 'closed' OR d.since IS NOT NULL
UNION ALL
SELECT b.tenant, b.downstream, b.state, b.since, b.forced, b.forced_at, b.forced_until, d.since
FROM tenant_breakers b LEFT JOIN tenant_breaker_deferrals d
    ON d.tenant = b.tenant AND d.downstream = b.downstream AND d.until IS NULL
WHERE coalesce(b.forced, b.state) <> 'closed' OR d.since IS NOT NULL
"""
_RUNNING_TARGETS: Final = """
SELECT DISTINCT coalesce(r.override->>'target', v.run_spec->>'target') AS target
FROM runs r JOIN schedule_versions v ON v.schedule_id = r.schedule_id AND v.version = r.version
WHERE r.finished_at IS NULL AND r.due_at < now() AND r.state = 'running' AND r.lease_until > now()
LIMIT $1
"""
# A slot whose run has ended shows when the slot became free. The first ticket of a waiting run is
# published before its due time, and the ticket that wakes the run afterwards.
_OVERLAPS: Final = f"""
SELECT t.schedule_id,
       bool_or(r.state IN ('running', 'unresolved')
               OR (r.state IN ('staged', 'retrying')
                   AND (t.role = 'running' OR r.state = 'retrying')
                   AND r.reason IS DISTINCT FROM 'waiting_for_overlap')) AS is_occupied,
       greatest(
           max(r.finished_at) FILTER (WHERE r.state <> 'unresolved'),
           max({FIRST_STAGED_AT})
               FILTER (WHERE r.reason = 'waiting_for_overlap' AND r.state IN ('staged', 'retrying')
                       AND {FIRST_STAGED_AT} > coalesce(r.next_attempt_at, r.due_at))
       ) AS free_since
FROM overlap_slots t
JOIN runs r ON r.schedule_id = t.schedule_id AND r.scheduled_for = t.scheduled_for
WHERE t.schedule_id = ANY($1)
GROUP BY t.schedule_id
"""  # noqa: S608  # the parts are constants


# Only the front of a line can wait although its label has a free slot. The row of a run that has
# ended its execution without a wake stays until the ticker finds it, within seconds.
_LABELS: Final = """
WITH front AS (
    SELECT DISTINCT ON (s.tenant, s.label) s.*
    FROM label_slots s
    JOIN runs r ON r.schedule_id = s.schedule_id AND r.scheduled_for = s.scheduled_for
    WHERE s.role = 'waiting' AND r.state IN ('staged', 'retrying')
      AND r.reason = 'waiting_for_label'
    ORDER BY s.tenant, s.label, s.due_at, s.scheduled_for, s.schedule_id
)
SELECT f.schedule_id, f.scheduled_for,
       count(*) FILTER (WHERE CASE WHEN r.state IN ('staged', 'running', 'retrying')
                                   THEN o.role = 'running' OR o.reserved_until > now()
                                   ELSE false END) >= f.run_limit AS is_occupied,
       greatest(f.since, max(r.finished_at), max(o.reserved_until)) AS free_since
FROM front f
LEFT JOIN label_slots o ON o.tenant = f.tenant AND o.label = f.label AND o.role <> 'waiting'
LEFT JOIN runs r ON r.schedule_id = o.schedule_id AND r.scheduled_for = o.scheduled_for
WHERE f.schedule_id = ANY($1)
GROUP BY f.schedule_id, f.scheduled_for, f.run_limit, f.since
"""


async def load_waits(connection: asyncpg.Connection, window: Window) -> Waits:
    """Return the deferrals that ended in the window or last, without the overlap slots."""
    deferrals: dict[tuple[str | None, str], list[DeferredRange]] = defaultdict(list)
    since = min(window.since, window.late_before) - window.late_after
    for row in await connection.fetch(_ENDED, since, MAX_ENDED):
        deferral = DeferredRange(row["since"], row["until"])
        deferrals[row["tenant"], row["downstream"]].append(deferral)
    breakers = [_breaker(row) for row in await connection.fetch(_BREAKERS)]
    probed = await _load_probed(connection, breakers, window)
    for breaker in breakers:
        is_probed = breaker.downstream in probed
        lasting = breaker.deferral(window.now, is_probed=is_probed)
        if lasting is not None:
            deferrals[breaker.tenant, breaker.downstream].append(lasting)
    return Waits(deferrals=deferrals)


async def load_overlaps(
    connection: asyncpg.Connection, ids: Sequence[UUID]
) -> Mapping[UUID, OverlapWait]:
    """Return the overlap slots of the schedules that restrict overlap and have open runs."""
    rows = await connection.fetch(_OVERLAPS, ids)
    return {row["schedule_id"]: OverlapWait(row["is_occupied"], row["free_since"]) for row in rows}


async def load_labels(
    connection: asyncpg.Connection, ids: Sequence[UUID]
) -> Mapping[RunKey, LabelWait]:
    """Return the waits of the schedules' runs that are at the front of the line of their label."""
    return {
        RunKey(row["scheduled_for"], row["schedule_id"]): LabelWait(
            is_occupied=row["is_occupied"], free_since=row["free_since"]
        )
        for row in await connection.fetch(_LABELS, ids)
    }


def downstream_of_text(target: str | None) -> str:
    """Return the downstream of a target as the database stores it."""
    return downstream_of_json(None if target is None else decode_trusted(target.encode()))


async def _load_probed(
    connection: asyncpg.Connection, breakers: Sequence[BreakerRow], window: Window
) -> frozenset[str]:
    """Return the downstreams that an attempt calls, if a breaker has not changed for long."""
    oldest = window.now - MAX_UNCHANGED
    is_needed = any(
        each.state is BreakerState.HALF_OPEN and each.since is not None and each.since < oldest
        for each in breakers
    )
    if not is_needed:
        return frozenset()
    rows = await connection.fetch(_RUNNING_TARGETS, MAX_RUNNING)
    return frozenset(downstream_of_text(row["target"]) for row in rows)


def _breaker(row: Mapping[str, Any]) -> BreakerRow:
    forced = row["forced"]
    columns = dict(row) | {
        "state": BreakerState(row["state"]),
        "forced": None if forced is None else BreakerState(forced),
    }
    return BreakerRow(**columns)
