"""The statements of `storage/runs/overlap.py` in memory."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from tests.fakes.ledger.claims import Schedules, Times
from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.runs import (
    RUNS,
    Run,
    all_runs,
    amend,
    key_columns,
    move,
    numbered,
    run_of,
)
from tests.fakes.ledger.store import Transaction

from harebell.contract.ids import RunKey
from harebell.domain.run_states import OPEN, Actor, Reason, RunState
from harebell.storage.runs.overlap import STATEMENTS

OVERLAP_SLOTS = "overlap_slots"
ADVISORY_LOCKS = "advisory locks"
_OPEN_OR_UNRESOLVED = OPEN | {RunState.UNRESOLVED}
_ROW_COLUMNS = ("state", "reason", "seq", "version", "lease_holder", "override")


@answers(STATEMENTS.limit_lock_wait)
def limit_lock_wait(_: Transaction) -> None:
    """Do nothing, because a transaction of this ledger never waits long."""


@answers(STATEMENTS.lock)
def lock(tx: Transaction, keys: Sequence[int]) -> None:
    for key in keys:
        tx.lock(ADVISORY_LOCKS, key)


@answers(STATEMENTS.try_lock)
def try_lock(tx: Transaction, keys: Sequence[int]) -> Iterator[Record]:
    return ({"key": key} for key in keys if tx.try_lock(ADVISORY_LOCKS, key))


@answers(STATEMENTS.open_run_rows)
def open_run_rows(
    tx: Transaction, schedules: Sequence[UUID], times: Times, named: Schedules
) -> Iterator[Record]:
    keys = _keys_with_slots(tx, schedules) | set(map(RunKey, times, named))
    for key in sorted(keys):
        run, slot = run_of(tx, key), tx.get(OVERLAP_SLOTS, key)
        if run is None or run.state not in _OPEN_OR_UNRESOLVED:
            continue
        if run.is_waiting and run.has_expired(tx.now):
            continue
        columns = {name: getattr(run, name) for name in _ROW_COLUMNS}
        role = None if slot is None else slot["role"]
        not_before = run.next_due if run.next_due > tx.now else None
        yield key_columns(run) | columns | {"role": role, "not_before": not_before}


@answers(STATEMENTS.lock_open_run_rows)
def lock_open_run_rows(
    tx: Transaction, schedules: Sequence[UUID], times: Times, named: Schedules
) -> list[Record]:
    found = list(open_run_rows(tx, schedules, times, named) or ())
    for record in found:
        tx.lock(RUNS, RunKey(record["scheduled_for"], record["schedule_id"]))
    return found


def _keys_with_slots(tx: Transaction, schedules: Sequence[UUID]) -> set[RunKey]:
    keys = {slot["key"] for slot in tx.rows(OVERLAP_SLOTS)}
    return {key for key in keys if key.schedule_id in schedules}


@answers(STATEMENTS.save_slots)
def save_slots(tx: Transaction, times: Times, schedules: Schedules, roles: Sequence[str]) -> None:
    for _, key, role in numbered(times, schedules, roles):
        tx.put(OVERLAP_SLOTS, key, {"key": key, "role": role})


@answers(STATEMENTS.mark_waiting)
def mark_waiting(tx: Transaction, times: Times, schedules: Schedules) -> None:
    for _, key in numbered(times, schedules):
        run = run_of(tx, key)
        if run is not None and run.is_waiting:
            amend(tx, run, reason=Reason.WAITING_FOR_OVERLAP)


@answers(STATEMENTS.finish_without_attempt)
def finish_without_attempt(
    tx: Transaction,
    times: Times,
    schedules: Schedules,
    states: Sequence[str],
    reasons: Sequence[str],
) -> None:
    for _, key, state, reason in numbered(times, schedules, states, reasons):
        run = run_of(tx, key)
        if run is not None and run.is_waiting:
            ended = {"finished_at": tx.now, "next_attempt_at": None}
            move(tx, Actor.OVERLAP, run, RunState(state), reason=reason, outcome=state, **ended)


@answers(STATEMENTS.wake)
def wake(
    tx: Transaction, times: Times, schedules: Schedules, min_ticket_age: float
) -> Iterator[Record]:
    latest = tx.now - timedelta(seconds=min_ticket_age)
    for _, key in numbered(times, schedules):
        run = run_of(tx, key)
        if run is None or run.reason != Reason.WAITING_FOR_OVERLAP or not tx.try_lock(RUNS, key):
            continue
        is_old_enough = run.staged_at is None or run.staged_at <= latest
        if not is_old_enough:
            continue
        tickets: dict[str, datetime | None] = {"republished_at": None, "first_staged_at": None}
        if min_ticket_age > 0:
            first = run.first_staged_at if run.is_republished else tx.now
            tickets = {"republished_at": tx.now, "first_staged_at": first}
        if move(tx, Actor.OVERLAP, run, run.state, staged_at=tx.now, **tickets) is not None:
            yield key_columns(run)


@answers(STATEMENTS.delete_stale_slots)
def delete_stale_slots(tx: Transaction, schedules: Sequence[UUID]) -> None:
    for key in _keys_with_slots(tx, schedules):
        run = run_of(tx, key)
        if run is None or run.state not in _OPEN_OR_UNRESOLVED:
            tx.put(OVERLAP_SLOTS, key, None)


@answers(STATEMENTS.find_stalled)
def find_stalled(tx: Transaction, limit: int, wake_after: float) -> list[Record]:
    schedules = dict.fromkeys(slot["key"].schedule_id for slot in tx.rows(OVERLAP_SLOTS))
    found = [schedule for schedule in schedules if _is_stalled(tx, schedule, wake_after)]
    return [{"schedule_id": schedule} for schedule in found[:limit]]


def _is_stalled(tx: Transaction, schedule: UUID, wake_after: float) -> bool:
    keys = _keys_with_slots(tx, [schedule])
    runs: list[Run] = [run for run in all_runs(tx) if run.key in keys]
    if len(runs) < len(keys) or any(run.state not in _OPEN_OR_UNRESOLVED for run in runs):
        return True
    latest = tx.now - timedelta(seconds=wake_after)
    is_waiting = any(
        run.reason == Reason.WAITING_FOR_OVERLAP
        and (run.staged_at is None or run.staged_at < latest)
        for run in runs
    )
    is_busy = any(run.state in (RunState.RUNNING, RunState.UNRESOLVED) for run in runs)
    return is_waiting and not is_busy
