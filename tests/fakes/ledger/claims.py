"""The statements of `storage/runs/claims.py` and `storage/runs/completion.py` in memory."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.runs import RUNS, Run, amend, move, numbered, run_of
from tests.fakes.ledger.store import Transaction

from harebell.contract.ids import RunKey
from harebell.domain.recurrence import RESOLUTION
from harebell.domain.run_states import Actor, RunState
from harebell.storage.runs import claims, completion

ATTEMPTS = "attempts"

Times = Sequence[datetime]
Schedules = Sequence[UUID]
Tokens = Sequence[int]

_FOUND_COLUMNS = (
    "seq",
    "state",
    "attempt",
    "failed_probes",
    "lease_holder",
    "version",
    "token",
    "checkpoint",
)
_HISTORY_COLUMNS = (
    "replay_number",
    "number",
    "lease_holder",
    "started_at",
    "finished_at",
    "outcome",
    "error_code",
    "error",
    "http_status",
    "is_failed_probe",
)
_RESULT_COLUMNS = (
    "error_code",
    "error",
    "http_status",
    "duration_ms",
    "result",
    "is_failed_probe",
    "trace",
)


@answers(claims.STATEMENTS.claim)
def claim(
    tx: Transaction,
    times: Times,
    schedules: Schedules,
    seqs: Tokens,
    versions: Sequence[int],
    overrides: Sequence[str | None],
    leases: Sequence[float],
    holder: str,
    due: Times,
) -> Iterator[Record]:
    tickets = numbered(times, schedules, seqs, versions, overrides, leases, due)
    for k, key, seq, version, override, lease, due_at in tickets:
        run = run_of(tx, key)
        current = None if run is None else (run.seq, run.version, run.override)
        if run is None or current != (seq, version, override) or run.has_expired(tx.now):
            continue
        if run.next_due > max(due_at + RESOLUTION, tx.now) or not tx.try_lock(RUNS, key):
            continue
        claimed = move(
            tx,
            Actor.CLAIM,
            run,
            RunState.RUNNING,
            attempt=run.attempt + 1,
            lease_holder=holder,
            epoch=tx.store.epoch,
            lease_seconds=lease,
            lease_until=tx.now + timedelta(seconds=lease),
            started_at=None,
            next_attempt_at=None,
            reason=None,
            stop_requested_at=None,
        )
        if claimed is not None:
            columns = ("token", "attempt", "failed_probes", "checkpoint")
            yield {"k": k, **{name: getattr(claimed, name) for name in columns}}


@answers(claims.STATEMENTS.find)
def find(tx: Transaction, times: Times, schedules: Schedules) -> Iterator[Record]:
    for k, key in numbered(times, schedules):
        if (run := run_of(tx, key)) is not None:
            columns = {name: getattr(run, name) for name in _FOUND_COLUMNS}
            yield columns | {"k": k, "is_expired": run.has_expired(tx.now)}


@answers(claims.STATEMENTS.renew)
def renew(
    tx: Transaction,
    times: Times,
    schedules: Schedules,
    tokens: Tokens,
    started: Sequence[datetime | None],
) -> Iterator[Record]:
    yield from _renew(tx, times, schedules, tokens, started, [])


@answers(claims.STATEMENTS.renew_with_progress)
def renew_with_progress(
    tx: Transaction,
    times: Times,
    schedules: Schedules,
    tokens: Tokens,
    started: Sequence[datetime | None],
    reports: Sequence[str | None],
) -> Iterator[Record]:
    yield from _renew(tx, times, schedules, tokens, started, reports)


def _renew(
    tx: Transaction,
    times: Times,
    schedules: Schedules,
    tokens: Tokens,
    started: Sequence[datetime | None],
    reports: Sequence[str | None],
) -> Iterator[Record]:
    reported = numbered(times, schedules, tokens, started, reports)
    for k, key, token, started_at, report in reported:
        run = fenced_run(tx, key, token)
        if run is not None and tx.try_lock(RUNS, key):
            until = tx.now + timedelta(seconds=run.lease_seconds or 0)
            progress = run.with_progress(report, tx.now)
            amend(tx, run, lease_until=until, started_at=started_at, **progress)
            yield {"k": k, "stop_reason": run.stop_reason}


@answers(claims.STATEMENTS.cancel_unstarted)
def cancel_unstarted(
    tx: Transaction, times: Times, schedules: Schedules, tokens: Tokens
) -> Iterator[Record]:
    for k, key, token in numbered(times, schedules, tokens):
        run = fenced_run(tx, key, token)
        if run is None or run.stop_reason is None:
            continue
        move(
            tx,
            Actor.COMPLETE,
            run,
            RunState.CANCELLED,
            attempt=run.attempt - 1,
            outcome=RunState.CANCELLED,
            reason=run.stop_reason,
            finished_at=tx.now,
            lease_until=None,
            lease_holder=None,
        )
        yield {"k": k}


@answers(claims.STATEMENTS.return_unstarted)
def return_unstarted(
    tx: Transaction, times: Times, schedules: Schedules, tokens: Tokens
) -> Iterator[Record]:
    for k, key, token in numbered(times, schedules, tokens):
        run = fenced_run(tx, key, token)
        if run is None or run.stop_reason is not None:
            continue
        is_retry = run.attempt > 1
        returned = move(
            tx,
            Actor.RETURN,
            run,
            RunState.RETRYING if is_retry else RunState.STAGED,
            attempt=run.attempt - 1,
            lease_until=None,
            lease_holder=None,
            staged_at=tx.now,
            started_at=None,
            next_attempt_at=tx.now if is_retry else None,
        )
        if returned is not None:
            yield {"k": k, "seq": returned.seq}


def fenced_run(tx: Transaction, key: RunKey, token: int) -> Run | None:
    """Return the running run if the fencing token is valid."""
    run = run_of(tx, key)
    is_valid = run is not None and run.state is RunState.RUNNING and run.token == token
    return run if is_valid else None


@answers(completion.STATEMENTS.complete_free)
@answers(completion.STATEMENTS.complete)
def complete(
    tx: Transaction, times: Times, schedules: Schedules, *columns: Any
) -> Iterator[Record]:
    for k, key, token, *values in numbered(times, schedules, *columns):
        run = fenced_run(tx, key, token)
        moved = None if run is None else _complete(tx, run, *values)
        if moved is not None:
            yield {"k": k, "seq": moved.seq}


def _complete(
    tx: Transaction,
    run: Run,
    state: str,
    reason: str | None,
    outcome: str,
    started_at: datetime | None,
    finished_at: datetime,
    next_attempt_at: datetime | None,
    staged_at: datetime | None,
    *result: Any,
) -> Run | None:
    is_retry = RunState(state) is RunState.RETRYING
    recorded = dict(zip(_RESULT_COLUMNS, result, strict=True))
    failed_probes = run.failed_probes
    if recorded["is_failed_probe"]:
        failed_probes = (failed_probes or 0) + 1
    moved = move(
        tx,
        Actor.RECOVER,
        run,
        RunState(state),
        reason=reason,
        outcome=outcome,
        started_at=started_at,
        lease_until=None,
        finished_at=None if is_retry else finished_at,
        next_attempt_at=next_attempt_at,
        staged_at=staged_at,
        failed_probes=failed_probes,
    )
    if moved is None:
        return None
    attempt_id = (run.key, run.replay_number, run.attempt)
    if tx.get(ATTEMPTS, attempt_id) is not None:
        raise asyncpg.UniqueViolationError(f"The attempt {attempt_id} exists.")
    attempt = {
        "key": run.key,
        "replay_number": run.replay_number,
        "number": run.attempt,
        "lease_holder": run.lease_holder,
        "started_at": started_at,
        "finished_at": finished_at,
        "outcome": outcome,
        **recorded,
    }
    tx.put(ATTEMPTS, attempt_id, attempt)
    return moved


@answers(completion.STATEMENTS.find_stop_requests)
def find_stop_requests(
    tx: Transaction, times: Times, schedules: Schedules, tokens: Tokens
) -> Iterator[Record]:
    for k, key, token in numbered(times, schedules, tokens):
        run = fenced_run(tx, key, token)
        if run is not None:
            tx.lock(RUNS, key)
            yield {"k": k, "stop_reason": run.stop_reason}


@answers(completion.STATEMENTS.find_recorded)
def find_recorded(
    tx: Transaction,
    times: Times,
    schedules: Schedules,
    finished: Times,
    outcomes: Sequence[str],
) -> Iterator[Record]:
    for k, *values in numbered(times, schedules, finished, outcomes):
        for attempt in tx.rows(ATTEMPTS):
            if [attempt["key"], attempt["finished_at"], attempt["outcome"]] == values:
                yield {"k": k}


@answers(completion.STATEMENTS.attempt_history)
def attempt_history(tx: Transaction, time: datetime, schedule: UUID) -> list[Record]:
    key = RunKey(time, schedule)
    attempts = [attempt for attempt in tx.rows(ATTEMPTS) if attempt["key"] == key]
    attempts.sort(key=lambda attempt: (attempt["replay_number"], attempt["number"]))
    return [{name: attempt[name] for name in _HISTORY_COLUMNS} for attempt in attempts]
