"""Delegated runs: the SQL of the start of a delegation, and of the reports of the workers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import asyncpg

from harebell.contract.ids import RunKey
from harebell.domain.run_states import ReportedRun
from harebell.storage.runs import in_key_order, key_arrays, nullable_array, progress_text


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationStatements:
    """The SQL texts of this module, which the in-memory ledger of the tests also answers."""

    delegate: str
    renew: str
    find: str


STATEMENTS: Final = DelegationStatements(
    # The state and `seq` stay the same, so the worker completes the run with the token of the
    # claim. The executor can complete the run with the same token if the call fails.
    delegate="""
UPDATE runs r SET lease_holder = 'worker', lease_seconds = t.heartbeat,
                  started_at = t.started_at,
                  lease_until = now() + make_interval(secs => t.heartbeat),
                  delegated_until = now() + make_interval(secs => t.max_duration)
FROM unnest($1::timestamptz[], $2::uuid[], $3::bigint[], $4::timestamptz[], $5::float8[],
            $6::float8[])
     WITH ORDINALITY AS t(scheduled_for, schedule_id, token, started_at, heartbeat,
                          max_duration, k)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state = 'running' AND harebell_token(r.epoch, r.seq) = t.token
           THEN true ELSE false END
RETURNING t.k
""",
    # The condition on the tenant is the right of the worker, whose login intake has verified.
    renew="""
UPDATE runs r SET lease_until = least(now() + make_interval(secs => r.lease_seconds),
                                      r.delegated_until),
                  progress = CASE WHEN t.progress IS NULL THEN r.progress
                                  ELSE coalesce(r.progress, '{}') || t.progress::jsonb END,
                  progress_at = CASE WHEN t.progress IS NULL THEN r.progress_at ELSE now() END
FROM unnest($1::timestamptz[], $2::uuid[], $3::bigint[], $4::text[], $5::text[])
     WITH ORDINALITY AS t(scheduled_for, schedule_id, token, tenant, progress, k)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state = 'running' AND harebell_token(r.epoch, r.seq) = t.token
            AND r.lease_holder = 'worker' AND r.tenant = t.tenant
           THEN true ELSE false END
RETURNING t.k, r.lease_until,
          CASE WHEN r.stop_requested_at IS NOT NULL
               THEN coalesce(r.reason, 'cancelled') END AS stop_reason
""",
    # The attempt with the number of the row exists after its end only.
    find="""
SELECT t.k, r.state, r.attempt, r.failed_probes, r.lease_holder, r.started_at,
       harebell_token(r.epoch, r.seq) AS token,
       CASE WHEN r.stop_requested_at IS NOT NULL
            THEN coalesce(r.reason, 'cancelled') END AS stop_reason,
       a.outcome AS last_outcome, a.error_code AS last_code
FROM unnest($1::timestamptz[], $2::uuid[], $3::text[])
     WITH ORDINALITY AS t(scheduled_for, schedule_id, tenant, k)
JOIN runs r ON r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
LEFT JOIN attempts a ON a.scheduled_for = r.scheduled_for AND a.schedule_id = r.schedule_id
                    AND a.replay_number = r.replay_number AND a.number = r.attempt
WHERE CASE WHEN r.tenant = t.tenant THEN true ELSE false END
""",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegatedRun:
    """A run to delegate, with the lengths of its lease and of the delegation in seconds."""

    key: RunKey
    token: int
    started_at: datetime
    heartbeat: float
    max_duration: float


class ReportRef(NamedTuple):
    """The run, the fencing token and the tenant of a report. Equal reports have the same effect."""

    key: RunKey
    token: int
    tenant: str


class Renewal(NamedTuple):
    """The renewed lease of a worker, and the reason of a stop request, or None."""

    lease_until: datetime
    stop_reason: str | None


NO_PROGRESS: Final[Mapping[ReportRef, Mapping[str, Any]]] = MappingProxyType({})


async def delegate(pool: asyncpg.Pool, runs: Sequence[DelegatedRun]) -> set[RunKey]:
    """Give the leases of claimed runs to workers and return the delegated runs.

    Omit a run whose fencing token is no longer valid. A repeat has the same effect.
    """
    ordered = in_key_order(runs)
    rows = await pool.fetch(
        STATEMENTS.delegate,
        *key_arrays(each.key for each in ordered),
        [each.token for each in ordered],
        [each.started_at for each in ordered],
        [each.heartbeat for each in ordered],
        [each.max_duration for each in ordered],
    )
    return {ordered[row["k"] - 1].key for row in rows}


async def renew(
    pool: asyncpg.Pool,
    reports: Sequence[ReportRef],
    progress: Mapping[ReportRef, Mapping[str, Any]] = NO_PROGRESS,
) -> dict[ReportRef, Renewal]:
    """Renew the leases of workers, never beyond the longest duration of the run.

    Store the fields of `progress`, and keep those that it omits. Omit a run of another tenant, a
    run without a worker and a token that is no longer valid.
    """
    ordered = in_key_order(set(reports))
    rows = await pool.fetch(
        STATEMENTS.renew,
        *key_arrays(each.key for each in ordered),
        [each.token for each in ordered],
        [each.tenant for each in ordered],
        nullable_array(progress_text(progress.get(each)) for each in ordered),
    )
    return {ordered[row["k"] - 1]: Renewal(row["lease_until"], row["stop_reason"]) for row in rows}


async def find(pool: asyncpg.Pool, reports: Sequence[ReportRef]) -> dict[ReportRef, ReportedRun]:
    """Return the row of each reported run. Omit a run that the tenant does not have."""
    ordered = in_key_order(set(reports))
    rows = await pool.fetch(
        STATEMENTS.find,
        *key_arrays(each.key for each in ordered),
        [each.tenant for each in ordered],
    )
    return {
        ordered[row["k"] - 1]: ReportedRun(
            state=row["state"],
            attempt=row["attempt"],
            token=row["token"],
            lease_holder=row["lease_holder"],
            started_at=row["started_at"],
            stop_reason=row["stop_reason"],
            failed_probes=row["failed_probes"] or 0,
            last_outcome=row["last_outcome"],
            last_code=row["last_code"],
        )
        for row in rows
    }
