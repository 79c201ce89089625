"""What an executor asks of the ledger in memory: claims, renewals, endings."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.runs import Run, amend, move, numbered, run_of
from tests.fakes.ledger.store import Transaction

from harebell.contract.ids import RunKey
from harebell.domain.recurrence import RESOLUTION
from harebell.domain.run_states import Actor, RunState
from harebell.storage.runs.claims import _CLAIM, _DROP, _FOUND, _RELEASE
from harebell.storage.runs.claims import _RENEW as _RENEW_LEASES
from harebell.storage.runs.completion import _AS_ENDED, _END, _HEED, _STORY

ATTEMPTS = "attempts"

Times = Sequence[datetime]
Schedules = Sequence[UUID]
Tokens = Sequence[int]


@answers(_CLAIM)
def claim(
    tx: Transaction,
    moments: Times,
    schedules: Schedules,
    seqs: Tokens,
    versions: Sequence[int],
    overrides: Sequence[str | None],
    leases: Sequence[float],
    holder: str,
    due: Times,
) -> Iterator[Record]:
    wanted = numbered(moments, schedules, seqs, versions, overrides, leases, due)
    for k, key, seq, version, override, lease, due_at in wanted:
        run = run_of(tx, key)
        said = None if run is None else (run.seq, run.version, run.override)
        if run is None or said != (seq, version, override) or run.has_expired(tx.now):
            continue
        if run.next_due > max(due_at + RESOLUTION, tx.now):
            continue
        claimed = move(
            tx, Actor.CLAIM, run, RunState.RUNNING,
            attempt=run.attempt + 1, lease_holder=holder, lease_seconds=lease,
            lease_until=tx.now + timedelta(seconds=lease), started_at=None,
            next_attempt_at=None, reason=None, stop_requested_at=None,
        )  # fmt: skip
        if claimed is not None:
            yield {"k": k, "seq": claimed.seq, "attempt": claimed.attempt}


@answers(_FOUND)
def found(tx: Transaction, moments: Times, schedules: Schedules) -> Iterator[Record]:
    for k, key in numbered(moments, schedules):
        if (run := run_of(tx, key)) is not None:
            yield {
                "k": k,
                "expired": run.has_expired(tx.now),
                **{name: getattr(run, name) for name in _TOLD},
            }


_TOLD = ("seq", "state", "attempt", "lease_holder", "version")


@answers(_RENEW_LEASES)
def renew(
    tx: Transaction,
    moments: Times,
    schedules: Schedules,
    tokens: Tokens,
    started: Sequence[datetime | None],
) -> Iterator[Record]:
    for k, key, token, started_at in numbered(moments, schedules, tokens, started):
        run = fenced_run(tx, key, token)
        if run is not None and tx.try_lock("runs", key):
            until = tx.now + timedelta(seconds=run.lease_seconds or 0)
            amend(tx, run, lease_until=until, started_at=started_at)
            yield {"k": k, "stop": run.stop_reason}


@answers(_DROP)
def drop(
    tx: Transaction, moments: Times, schedules: Schedules, tokens: Tokens
) -> Iterator[Record]:
    for k, key, token in numbered(moments, schedules, tokens):
        run = fenced_run(tx, key, token)
        if run is None or run.stop_reason is None:
            continue
        move(
            tx, Actor.COMPLETE, run, RunState.CANCELLED,
            attempt=run.attempt - 1, outcome=RunState.CANCELLED, reason=run.stop_reason,
            finished_at=tx.now, lease_until=None, lease_holder=None,
        )  # fmt: skip
        yield {"k": k}


@answers(_RELEASE)
def release(
    tx: Transaction, moments: Times, schedules: Schedules, tokens: Tokens
) -> Iterator[Record]:
    for k, key, token in numbered(moments, schedules, tokens):
        run = fenced_run(tx, key, token)
        if run is None or run.stop_reason is not None:
            continue
        again = run.attempt > 1
        released = move(
            tx, Actor.RETURN, run, RunState.RETRYING if again else RunState.STAGED,
            attempt=run.attempt - 1, lease_until=None, lease_holder=None, staged_at=tx.now,
            started_at=None, next_attempt_at=tx.now if again else None,
        )  # fmt: skip
        if released is not None:
            yield {"k": k, "seq": released.seq}


def fenced_run(tx: Transaction, key: RunKey, token: int) -> Run | None:
    """The run, while this token fences it."""
    run = run_of(tx, key)
    fenced = run is not None and run.state is RunState.RUNNING and run.seq == token
    return run if fenced else None


@answers(_END)
def end(tx: Transaction, moments: Times, schedules: Schedules, *columns: Any) -> Iterator[Record]:
    for k, key, token, *told in numbered(moments, schedules, *columns):
        run = fenced_run(tx, key, token)
        ended = None if run is None else _ended(tx, run, key, *told)
        if ended is not None:
            yield {"k": k, "seq": ended.seq}


def _ended(
    tx: Transaction,
    run: Run,
    key: RunKey,
    state: str,
    reason: str | None,
    outcome: str,
    started_at: datetime | None,
    finished_at: datetime,
    next_attempt_at: datetime | None,
    staged_at: datetime | None,
    *told: Any,
) -> Run | None:
    again = RunState(state) is RunState.RETRYING
    ended = move(
        tx, Actor.RECOVER, run, RunState(state),
        reason=reason, outcome=outcome, started_at=started_at, lease_until=None,
        finished_at=None if again else finished_at,
        next_attempt_at=next_attempt_at, staged_at=staged_at,
    )  # fmt: skip
    place = (key, run.replay_number, run.attempt)
    if ended is not None and tx.get(ATTEMPTS, place) is not None:
        raise asyncpg.UniqueViolationError(f"{key} has this attempt already")
    if ended is not None:
        kept = (
            run.replay_number,
            run.attempt,
            run.lease_holder,
            started_at,
            finished_at,
            outcome,
            *told,
        )
        tx.put(ATTEMPTS, place, {"key": key, **dict(zip(_ATTEMPT, kept, strict=True))})
    return ended


_ATTEMPT = (
    *("replay_number", "number", "lease_holder", "started_at", "finished_at", "outcome"),
    *("error_code", "error", "http_status", "duration_ms", "result"),
)


@answers(_HEED)
def heed(
    tx: Transaction, moments: Times, schedules: Schedules, tokens: Tokens
) -> Iterator[Record]:
    for k, key, token in numbered(moments, schedules, tokens):
        run = fenced_run(tx, key, token)
        if run is not None:
            tx.lock("runs", key)
            yield {"k": k, "stop": run.stop_reason}


@answers(_AS_ENDED)
def as_ended(
    tx: Transaction,
    moments: Times,
    schedules: Schedules,
    finished: Times,
    outcomes: Sequence[str],
) -> Iterator[Record]:
    for k, key, finished_at, outcome in numbered(moments, schedules, finished, outcomes):
        for kept in tx.rows(ATTEMPTS):
            if (kept["key"], kept["finished_at"], kept["outcome"]) == (key, finished_at, outcome):
                yield {"k": k}


@answers(_STORY)
def story(tx: Transaction, moment: datetime, schedule: UUID) -> list[Record]:
    attempts = [kept for kept in tx.rows(ATTEMPTS) if kept["key"] == RunKey(moment, schedule)]
    shown = _ATTEMPT[:9]
    ordered = sorted(attempts, key=lambda kept: (kept["replay_number"], kept["number"]))
    return [{name: kept[name] for name in shown} for kept in ordered]
