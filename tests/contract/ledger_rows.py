"""Rows of the ledger in every state, for the statements under test."""

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID, uuid5

import asyncpg

from harebell.contract.ids import RunKey
from harebell.contract.types import truncate_ms
from harebell.domain.run_states import (
    OPEN,
    RESTAGEABLE,
    AttemptCompletion,
    NewRun,
    Placement,
    Reason,
    RunState,
)

SEQ: Final = 7
VERSION: Final = 3
HOLDER: Final = "executor-1"
LEASE: Final = 15.0  # seconds
RETRY_WAIT: Final = timedelta(seconds=5)
PLACEMENT: Final = Placement("acme", VERSION, "default", "normal", 5)
NOW: Final = truncate_ms(datetime.now(UTC))
_SPACE: Final = UUID("5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11")

PUT_RUN: Final = """
INSERT INTO runs (scheduled_for, schedule_id, tenant, version, seq, pool, lane, priority, state,
                  reason, attempt, due_at, expires_at, staged_at, stop_requested_at,
                  lease_holder, lease_seconds, lease_until, next_attempt_at, finished_at, outcome)
VALUES ($1, $2, 'acme', $3, $4, 'default', 'normal', 5, $5, $6, $7, $1, $8, now(), $9,
        $10, $11, $12, $13, $14, $15)
"""
# The due time and the time of the last ticket, in seconds after now.
SET_TIMES: Final = """
UPDATE runs SET due_at = now() + make_interval(secs => $3),
                staged_at = now() + make_interval(secs => $4),
                next_attempt_at = CASE WHEN next_attempt_at IS NOT NULL
                                       THEN now() + make_interval(secs => $3) END
WHERE scheduled_for = $1 AND schedule_id = $2
"""
FIND_SEQS: Final = "SELECT scheduled_for, schedule_id, state, seq FROM runs"
# A promotion of a standby has the same effect on the claims.
RAISE_EPOCH: Final = "UPDATE ledger_epoch SET base = base + 1"
FIND_RUN: Final = "SELECT * FROM runs WHERE scheduled_for = $1 AND schedule_id = $2"


@dataclass(frozen=True, slots=True)
class Row:
    """The properties of a run, from which its key is derived."""

    state: RunState
    attempt: int = 0
    reason: str | None = None
    _: KW_ONLY
    has_stop_request: bool = False
    is_expired: bool = False
    has_expired_lease: bool = False

    @property
    def key(self) -> RunKey:
        return RunKey(NOW, uuid5(_SPACE, repr(self)))


_S = RunState
ROWS: Final = (
    Row(_S.STAGED),
    Row(_S.STAGED, is_expired=True),
    Row(_S.STAGED, 0, Reason.WAITING_FOR_OVERLAP),
    Row(_S.STAGED, 0, Reason.WAITING_FOR_LABEL),
    Row(_S.RETRYING, 1, Reason.WAITING_FOR_LABEL),
    Row(_S.RETRYING, 1),
    Row(_S.RETRYING, 1, is_expired=True),
    Row(_S.RETRYING, 1, Reason.WAITING_FOR_OVERLAP),
    Row(_S.RUNNING, 1),
    Row(_S.RUNNING, 2),
    Row(_S.RUNNING, 1, is_expired=True),
    Row(_S.RUNNING, 1, has_expired_lease=True),
    Row(_S.RUNNING, 1, Reason.CANCELLED, has_stop_request=True),
    Row(_S.SUCCEEDED, 1),
    Row(_S.DEAD, 5, "attempts_exhausted"),
    Row(_S.UNRESOLVED, 1, Reason.UNKNOWN_OUTCOME),
    *(Row(_S.CANCELLED, 0, reason) for reason in (*sorted(RESTAGEABLE), Reason.REPLACED)),
    *(Row(_S.CANCELLED, 1, reason) for reason in (*sorted(RESTAGEABLE), Reason.REPLACED)),
    Row(_S.EXPIRED, 0, Reason.EXPIRED),
    Row(_S.EXPIRED, 1, Reason.EXPIRED),
    Row(_S.SKIPPED, 0, Reason.PAUSED),
    Row(_S.SKIPPED, 1, Reason.UNKNOWN_OUTCOME),
)


def run_keys(count: int, state: RunState = RunState.STAGED) -> list[RunKey]:
    """Return the keys of `count` runs that differ only in their keys."""
    return sorted(RunKey(NOW, uuid5(_SPACE, f"{state}/{number}")) for number in range(count))


async def insert_rows(pool: asyncpg.Pool, rows: Iterable[Row]) -> None:
    await insert_rows_as(pool, {row.key: row for row in rows})


async def insert_rows_as(pool: asyncpg.Pool, rows: Mapping[RunKey, Row]) -> None:
    """Insert the rows with the given keys instead of the derived ones."""
    await pool.executemany(PUT_RUN, [_values(key, row) for key, row in rows.items()])


def _values(key: RunKey, row: Row) -> tuple[object, ...]:
    is_running, is_retry = row.state is RunState.RUNNING, row.state is RunState.RETRYING
    is_open = row.state in OPEN
    hour = timedelta(hours=1)  # no test run takes an hour
    lease_until = NOW - hour if row.has_expired_lease else NOW + hour
    return (
        key.scheduled_for,
        key.schedule_id,
        VERSION,
        SEQ,
        row.state,
        row.reason,
        row.attempt,
        NOW - hour if row.is_expired else None,
        NOW if row.has_stop_request else None,
        HOLDER if is_running else None,
        LEASE if is_running else None,
        lease_until if is_running else None,
        NOW if is_retry else None,
        None if is_open else NOW,
        None if is_open else row.state,
    )


async def states_and_seqs(pool: asyncpg.Pool) -> dict[RunKey, tuple[RunState, int]]:
    """Return the state and the `seq` of every run."""
    rows = await pool.fetch(FIND_SEQS)
    return {
        RunKey(row["scheduled_for"], row["schedule_id"]): (RunState(row["state"]), row["seq"])
        for row in rows
    }


async def row_of(pool: asyncpg.Pool, key: RunKey) -> asyncpg.Record:
    return await pool.fetchrow(FIND_RUN, key.scheduled_for, key.schedule_id)


def new_run(key: RunKey, place: Placement = PLACEMENT) -> NewRun:
    return NewRun(key, place, key.scheduled_for, None)


def completion_of(key: RunKey, state: RunState, *, token: int = SEQ) -> AttemptCompletion:
    """Return the completion of an attempt whose run moves to the state."""
    retry_at = NOW + RETRY_WAIT if state is RunState.RETRYING else None
    succeeded = state is RunState.SUCCEEDED
    return AttemptCompletion(
        key=key,
        token=token,
        state=state,
        outcome="succeeded" if succeeded else "failed",
        started_at=NOW,
        finished_at=NOW + timedelta(milliseconds=40),
        next_attempt_at=retry_at,
        staged_at=retry_at and NOW,
        error_code=None if succeeded else "http_503",
    )
