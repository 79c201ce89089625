"""Rows of the ledger in every state they may be in, put there for statements to work on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
PLACE: Final = Placement("acme", VERSION, "default", "normal", 5)
NOW: Final = truncate_ms(datetime.now(UTC))
_SPACE: Final = UUID("5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11")

PUT: Final = """
INSERT INTO runs (scheduled_for, schedule_id, tenant, version, seq, pool, lane, priority, state,
                  reason, attempt, due_at, expires_at, staged_at, stop_requested_at,
                  lease_holder, lease_seconds, lease_until, next_attempt_at, finished_at, outcome)
VALUES ($1, $2, 'acme', $3, $4, 'default', 'normal', 5, $5, $6, $7, $1, $8, now(), $9,
        $10, $11, $12, $13, $14, $15)
"""
SEQS: Final = "SELECT scheduled_for, schedule_id, state, seq FROM runs"
ROW: Final = "SELECT * FROM runs WHERE scheduled_for = $1 AND schedule_id = $2"


@dataclass(frozen=True, slots=True)
class Row:
    """One run; its name is what is worth saying of it, and makes its key."""

    state: RunState
    attempt: int = 0
    reason: str | None = None
    asked_to_stop: bool = False
    expired: bool = False  # its time to live has passed
    lapsed: bool = False  # its lease has run out

    @property
    def key(self) -> RunKey:
        return RunKey(NOW, uuid5(_SPACE, repr(self)))


_S = RunState
ROWS: Final = (
    Row(_S.STAGED),
    Row(_S.STAGED, expired=True),
    Row(_S.STAGED, 0, Reason.WAITING_FOR_OVERLAP),
    Row(_S.RETRYING, 1),
    Row(_S.RETRYING, 1, expired=True),
    Row(_S.RETRYING, 1, Reason.WAITING_FOR_OVERLAP),
    Row(_S.RUNNING, 1),
    Row(_S.RUNNING, 2),
    Row(_S.RUNNING, 1, expired=True),
    Row(_S.RUNNING, 1, lapsed=True),
    Row(_S.RUNNING, 1, Reason.CANCELLED, asked_to_stop=True),
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


def crowd(count: int, state: RunState = RunState.STAGED) -> list[RunKey]:
    """Keys of so many runs that differ in nothing else."""
    return sorted(RunKey(NOW, uuid5(_SPACE, f"{state}/{number}")) for number in range(count))


async def put(pool: asyncpg.Pool, rows: Iterable[Row]) -> None:
    await put_as(pool, {row.key: row for row in rows})


async def put_as(pool: asyncpg.Pool, rows: Mapping[RunKey, Row]) -> None:
    """Under keys of the caller's choice."""
    await pool.executemany(PUT, [_values(key, row) for key, row in rows.items()])


def _values(key: RunKey, row: Row) -> tuple[object, ...]:
    runs, waits = row.state is RunState.RUNNING, row.state is RunState.RETRYING
    is_open = row.state in OPEN
    long = timedelta(hours=1)  # longer than any suite takes
    return (
        *(key.scheduled_for, key.schedule_id, VERSION, SEQ, row.state, row.reason, row.attempt),
        NOW - long if row.expired else None,
        NOW if row.asked_to_stop else None,
        *((HOLDER, LEASE) if runs else (None, None)),
        (NOW - long if row.lapsed else NOW + long) if runs else None,
        NOW if waits else None,
        None if is_open else NOW,
        None if is_open else row.state,
    )


async def seqs(pool: asyncpg.Pool) -> dict[RunKey, tuple[RunState, int]]:
    """What the ledger says of every run: its state and its seq."""
    rows = await pool.fetch(SEQS)
    return {
        RunKey(row["scheduled_for"], row["schedule_id"]): (RunState(row["state"]), row["seq"])
        for row in rows
    }


async def row_of(pool: asyncpg.Pool, key: RunKey) -> asyncpg.Record:
    return await pool.fetchrow(ROW, key.scheduled_for, key.schedule_id)


def owed(key: RunKey, place: Placement = PLACE) -> NewRun:
    return NewRun(key, place, key.scheduled_for, None)


def ending(key: RunKey, state: RunState, *, token: int = SEQ) -> AttemptCompletion:
    """Of an attempt that has just ended so."""
    retry_at = NOW + timedelta(seconds=5) if state is RunState.RETRYING else None
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
