"""The statement about the runs of tenants, for the waits by the quota `runs_per_second`.

The dispatcher writes nothing, so the audit computes the waits from the runs and the present quota.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import asyncpg

from harebell.audit.model.rate_waits import SLOT, all_rate_ranges
from harebell.audit.model.records import Window
from harebell.audit.model.waits import DeferredRange
from harebell.audit.store import FIRST_STAGED_AT
from harebell.domain.tenant_policy import TenantPolicies

LOOKBACK: Final = timedelta(hours=1)  # before the window, for a backlog that began earlier
TIME_SLICE: Final = timedelta(minutes=30)  # of the runs that one statement reads
MAX_SLOTS: Final = 100_000  # of one slice, the slots with the most runs first

# A slice contributes the slots of a tenant if one of them exceeds the rate, or if an earlier slice
# contributed. Without a slot the audit computes a shorter wait, and never a longer one.
# A retry counts at its start, because a finished run does not keep the due time of its retries.
_DUE: Final = f"""
WITH rates AS (SELECT * FROM unnest($3::text[], $4::float8[]) AS given (tenant, per_second)),
due AS (
    SELECT tenant, greatest(due_at, {FIRST_STAGED_AT}) AS at FROM runs
    WHERE scheduled_for >= $1 AND scheduled_for < $2 AND state <> 'skipped'
    UNION ALL
    SELECT r.tenant, a.started_at FROM attempts a
    JOIN runs r ON r.scheduled_for = a.scheduled_for AND r.schedule_id = a.schedule_id
    WHERE a.scheduled_for >= $1 AND a.scheduled_for < $2
      AND (a.number > 1 OR a.replay_number > 0) AND a.started_at IS NOT NULL
), counted AS (
    SELECT tenant, floor(extract(epoch FROM at) / $6)::bigint AS slot, count(*) AS number
    FROM due GROUP BY 1, 2
), busy AS (
    SELECT counted.tenant FROM counted LEFT JOIN rates ON rates.tenant = counted.tenant
    WHERE CASE WHEN rates.tenant IS NULL THEN $5::float8 ELSE rates.per_second END * $6 < number
    UNION SELECT unnest($7::text[])
)
SELECT tenant, slot, number FROM counted JOIN busy USING (tenant) ORDER BY number DESC LIMIT $8
"""  # noqa: S608  # the parts are constants


async def load_rate_ranges(
    connection: asyncpg.Connection, window: Window, policies: TenantPolicies
) -> Mapping[str, Sequence[DeferredRange]]:
    """Return the ranges in which more runs were due than the quota permits, by tenant."""
    default = policies.defaults.quotas.runs_per_second
    rates = {name: each.quotas.runs_per_second for name, each in policies.tenants.items()}
    if default is None and all(each is None for each in rates.values()):
        return {}
    found: list[tuple[str, int, int]] = []
    busy: set[str] = set()
    since = window.since - LOOKBACK
    while since < window.now:
        until = min(since + TIME_SLICE, window.now)
        rows = await connection.fetch(
            _DUE,
            since,
            until,
            list(rates),
            list(rates.values()),
            default,
            SLOT.total_seconds(),
            sorted(busy),
            MAX_SLOTS,
        )
        found += [(row["tenant"], row["slot"], row["number"]) for row in rows]
        busy.update(row["tenant"] for row in rows)
        since = until
    known = {tenant: policies.of(tenant).quotas.runs_per_second for tenant in busy}
    return all_rate_ranges(
        found, {tenant: rate for tenant, rate in known.items() if rate is not None}
    )
