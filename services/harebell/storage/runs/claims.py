"""Claims of runs: the SQL that gives, renews and ends the lease of an executor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeGuard

import asyncpg

from harebell.contract.ids import RunKey
from harebell.domain.recurrence import RESOLUTION
from harebell.domain.run_states import Actor, RunState, seq_of
from harebell.storage.runs import before, in_key_order, key_arrays, nullable_array, progress_text
from harebell.storage.runs.partitions import fetch_on_day


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimStatements:
    """The SQL texts of this module, which the in-memory ledger of the tests also answers."""

    claim: str
    find: str
    renew: str
    renew_with_progress: str
    cancel_unstarted: str
    return_unstarted: str


_RENEW: Final = """
WITH claimed AS (
    SELECT t.k, t.started_at, r.scheduled_for, r.schedule_id
    FROM unnest($1::timestamptz[], $2::uuid[], $3::bigint[], $4::timestamptz[])
         WITH ORDINALITY AS t(scheduled_for, schedule_id, token, started_at, k)
    JOIN runs r ON r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
    WHERE CASE WHEN r.state = 'running' AND harebell_token(r.epoch, r.seq) = t.token
               THEN true ELSE false END
    FOR UPDATE OF r SKIP LOCKED
)
UPDATE runs r SET lease_until = now() + make_interval(secs => r.lease_seconds),
                  started_at = claimed.started_at
FROM claimed
WHERE r.scheduled_for = claimed.scheduled_for AND r.schedule_id = claimed.schedule_id
RETURNING claimed.k,
          CASE WHEN r.stop_requested_at IS NOT NULL
               THEN coalesce(r.reason, 'cancelled') END AS stop_reason
"""
# A batch without a report has the statement above, so its renewals write no further column.
_RENEW_WITH_PROGRESS: Final = (
    _RENEW.replace("$4::timestamptz[])", "$4::timestamptz[], $5::text[])")
    .replace("token, started_at, k)", "token, started_at, progress, k)")
    .replace("t.k, t.started_at,", "t.k, t.started_at, t.progress::jsonb AS progress,")
    .replace(
        "started_at = claimed.started_at",
        """started_at = claimed.started_at,
                  progress = CASE WHEN claimed.progress IS NULL THEN r.progress
                                  ELSE coalesce(r.progress, '{}') || claimed.progress END,
                  progress_at = CASE WHEN claimed.progress IS NULL THEN r.progress_at
                                     ELSE now() END""",
    )
)

STATEMENTS: Final = ClaimStatements(
    # A ticket of a failed transaction can have the `seq` of the row and an earlier time. Times of
    # tickets have milliseconds. A due row accepts any ticket with its `seq`.
    # The rows of a batch belong to several tenants, and none waits for a locked row of another.
    claim=f"""
WITH claimable AS (
    SELECT t.k, t.lease, r.scheduled_for, r.schedule_id
    FROM unnest($1::timestamptz[], $2::uuid[], $3::int[], $4::int[], $5::text[], $6::float8[],
                $8::timestamptz[])
         WITH ORDINALITY AS t(scheduled_for, schedule_id, seq, version, override, lease, due_at, k)
    JOIN runs r ON r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
    WHERE CASE WHEN r.state {before(Actor.CLAIM, RunState.RUNNING)}
                AND r.seq = t.seq AND r.version = t.version
                AND r.override::text IS NOT DISTINCT FROM t.override
                AND (r.expires_at IS NULL OR r.expires_at > now())
                AND coalesce(r.next_attempt_at, r.due_at)
                    <= greatest(t.due_at + interval '1 millisecond', now())
               THEN true ELSE false END
    FOR NO KEY UPDATE OF r SKIP LOCKED
)
UPDATE runs r SET state = 'running', seq = r.seq + 1, attempt = r.attempt + 1,
                  lease_holder = $7, epoch = (SELECT harebell_epoch()),
                  lease_until = now() + make_interval(secs => claimable.lease),
                  lease_seconds = claimable.lease, started_at = NULL, next_attempt_at = NULL,
                  reason = NULL, stop_requested_at = NULL
FROM claimable
WHERE r.scheduled_for = claimable.scheduled_for AND r.schedule_id = claimable.schedule_id
RETURNING claimable.k, harebell_token(r.epoch, r.seq) AS token, r.attempt, r.failed_probes,
          r.progress -> 'checkpoint' AS checkpoint
""",
    find="""
SELECT t.k, r.seq, r.state, r.attempt, r.failed_probes, r.lease_holder, r.version,
       harebell_token(r.epoch, r.seq) AS token, r.progress -> 'checkpoint' AS checkpoint,
       coalesce(r.expires_at <= now(), false) AS is_expired
FROM unnest($1::timestamptz[], $2::uuid[]) WITH ORDINALITY AS t(scheduled_for, schedule_id, k)
JOIN runs r ON r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
""",
    renew=_RENEW,
    renew_with_progress=_RENEW_WITH_PROGRESS,
    cancel_unstarted=f"""
UPDATE runs r SET state = 'cancelled', seq = r.seq + 1, attempt = r.attempt - 1,
                  outcome = 'cancelled', reason = coalesce(r.reason, 'cancelled'),
                  finished_at = now(), lease_until = NULL, lease_holder = NULL
FROM unnest($1::timestamptz[], $2::uuid[], $3::bigint[])
     WITH ORDINALITY AS t(scheduled_for, schedule_id, token, k)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state {before(Actor.COMPLETE, RunState.CANCELLED)}
            AND harebell_token(r.epoch, r.seq) = t.token
            AND r.stop_requested_at IS NOT NULL
           THEN true ELSE false END
RETURNING t.k
""",
    return_unstarted=f"""
UPDATE runs r SET state = CASE WHEN r.attempt > 1 THEN 'retrying' ELSE 'staged' END,
                  seq = r.seq + 1, attempt = r.attempt - 1, lease_until = NULL,
                  lease_holder = NULL, staged_at = now(), started_at = NULL,
                  next_attempt_at = CASE WHEN r.attempt > 1 THEN now() END
FROM unnest($1::timestamptz[], $2::uuid[], $3::bigint[])
     WITH ORDINALITY AS t(scheduled_for, schedule_id, token, k)
WHERE r.scheduled_for = t.scheduled_for AND r.schedule_id = t.schedule_id
  AND CASE WHEN r.state {before(Actor.RETURN, RunState.STAGED)}
            AND harebell_token(r.epoch, r.seq) = t.token
            AND r.stop_requested_at IS NULL
           THEN true ELSE false END
RETURNING t.k, r.seq
""",
)


@dataclass(slots=True, unsafe_hash=True, kw_only=True)  # `frozen` would double the creation time
class ClaimKey:
    """The values of a ticket that its row must have for a claim.

    `lease` is the length of the lease in seconds, and `due_at` is the time of the ticket.
    Two tickets that differ only in `due_at` are equal, because only one of them can claim the run.
    """

    key: RunKey
    seq: int
    version: int
    override: str | None
    lease: float
    due_at: datetime = field(compare=False)

    def is_in_time_for(self, not_before: datetime | None) -> bool:
        """Return whether the claim statement accepts the time of the ticket."""
        return not_before is None or not_before <= self.due_at + RESOLUTION

    def matches(self, claim: "Claim | None") -> TypeGuard["Claim"]:
        """Return whether this ticket claimed the run, and not another ticket of the run."""
        return claim is not None and seq_of(claim.token) == self.seq + 1


class Claim(NamedTuple):
    """A claimed run. `token` is the fencing token of its renewals and its completion.

    `started_at` is None until the attempt starts. `failed_probes` of the earlier attempts do not
    count for `max_attempts`.
    The class is a tuple because each run creates several (decision 19).
    """

    key: RunKey
    token: int
    attempt: int
    started_at: datetime | None = None
    failed_probes: int = 0
    checkpoint: str | None = None  # JSON of the last report of the earlier attempts


NO_PROGRESS: Final[Mapping[RunKey, Mapping[str, Any]]] = MappingProxyType({})


async def claim(pool: asyncpg.Pool, keys: Sequence[ClaimKey], holder: str) -> dict[RunKey, Claim]:
    """Return the claims that succeeded, by run key.

    Omit a run that is cancelled, expired or newer than its ticket, and a locked row.
    """
    ordered = in_key_order(keys)
    parameters = _claim_parameters(ordered, holder)
    rows = await fetch_on_day(pool, STATEMENTS.claim, *parameters, rows=ordered)
    return _claims(ordered, rows)


async def claim_in_transaction(
    connection: asyncpg.Connection, keys: Sequence[ClaimKey], holder: str
) -> dict[RunKey, Claim]:
    """Return the same claims as `claim`, from a transaction that has locked their rows."""
    ordered = in_key_order(keys)
    parameters = _claim_parameters(ordered, holder)
    return _claims(ordered, await connection.fetch(STATEMENTS.claim, *parameters))


def _claim_parameters(ordered: Sequence[ClaimKey], holder: str) -> list[Any]:
    return [
        *key_arrays(each.key for each in ordered),
        [each.seq for each in ordered],
        [each.version for each in ordered],
        nullable_array(each.override for each in ordered),
        [each.lease for each in ordered],
        holder,
        [each.due_at for each in ordered],
    ]


def _claims(ordered: Sequence[ClaimKey], rows: Sequence[asyncpg.Record]) -> dict[RunKey, Claim]:
    claims = (_claim(ordered[row["k"] - 1].key, row) for row in rows)
    return {each.key: each for each in claims}


class ClaimRejection(Enum):
    """The reason of a claim that did not succeed."""

    NOT_VISIBLE_YET = auto()  # the transaction that published the ticket may still commit
    NOT_CLAIMED_YET = auto()  # a later claim may succeed, because the row was locked or too new
    STALE = auto()  # no later claim with this ticket can succeed


async def explain_rejection(
    pool: asyncpg.Pool, rejected: Sequence[ClaimKey], holder: str
) -> dict[ClaimKey, ClaimRejection | Claim]:
    """Return the claim or the reason for each rejected claim.

    A claim whose commit was in doubt may have succeeded.
    """
    rows = await pool.fetch(STATEMENTS.find, *key_arrays(each.key for each in rejected))
    found = {rejected[row["k"] - 1].key: row for row in rows}
    return {each: _explain(each, found.get(each.key), holder) for each in rejected}


def _explain(rejected: ClaimKey, row: asyncpg.Record | None, holder: str) -> ClaimRejection | Claim:
    if row is None or rejected.seq > row["seq"]:
        return ClaimRejection.NOT_VISIBLE_YET
    is_running = row["state"] == RunState.RUNNING
    if is_running and row["lease_holder"] == holder and row["seq"] == rejected.seq + 1:
        return _claim(rejected.key, row)
    if row["seq"] != rejected.seq:
        return ClaimRejection.STALE
    is_waiting = row["state"] in (RunState.STAGED, RunState.RETRYING) and not row["is_expired"]
    if is_waiting and row["version"] == rejected.version:
        return ClaimRejection.NOT_CLAIMED_YET
    return ClaimRejection.NOT_VISIBLE_YET if is_running else ClaimRejection.STALE


def _claim(key: RunKey, row: asyncpg.Record) -> Claim:
    """Return the claim of a row, whose `failed_probes` is null without a failed probe."""
    return Claim(
        key,
        row["token"],
        row["attempt"],
        failed_probes=row["failed_probes"] or 0,
        checkpoint=row["checkpoint"],
    )


async def renew(
    pool: asyncpg.Pool,
    claims: Sequence[Claim],
    progress: Mapping[RunKey, Mapping[str, Any]] = NO_PROGRESS,
) -> dict[RunKey, str | None]:
    """Renew the leases and return the reason of the stop request of each run, or None.

    Store the fields of `progress`, and keep those that it omits. Omit a run that another executor
    or the ticker has taken, and skip a locked row.
    """
    ordered = in_key_order(claims)
    started_at = nullable_array(each.started_at for each in ordered)
    parameters: list[Any] = [*_token_arrays(ordered), started_at]
    statement = STATEMENTS.renew
    if progress:
        statement = STATEMENTS.renew_with_progress
        parameters.append([progress_text(progress.get(each.key)) for each in ordered])
    rows = await fetch_on_day(pool, statement, *parameters, rows=ordered)
    return {ordered[row["k"] - 1].key: row["stop_reason"] for row in rows}


async def cancel_unstarted(
    connection: asyncpg.Connection | asyncpg.Pool, claims: Sequence[Claim]
) -> set[RunKey]:
    """Cancel the claimed runs with a stop request, as if no attempt had been made."""
    ordered = in_key_order(claims)
    rows = await connection.fetch(STATEMENTS.cancel_unstarted, *_token_arrays(ordered))
    return {ordered[row["k"] - 1].key for row in rows}


async def return_unstarted(
    connection: asyncpg.Connection, claims: Sequence[Claim]
) -> dict[RunKey, int]:
    """Make the runs claimable again, as if no attempt had been made, and return their new `seq`.

    A run with a stop request stays claimed until its lease expires and the rescuer cancels it.
    """
    ordered = in_key_order(claims)
    rows = await connection.fetch(STATEMENTS.return_unstarted, *_token_arrays(ordered))
    return {ordered[row["k"] - 1].key: row["seq"] for row in rows}


def _token_arrays(claims: Sequence[Claim]) -> tuple[list[datetime], list[object], list[int]]:
    times, schedules = key_arrays(each.key for each in claims)
    return times, list(schedules), [each.token for each in claims]
