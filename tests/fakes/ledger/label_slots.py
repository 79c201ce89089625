"""The statements of `storage/runs/label_slots.py` in memory."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from tests.fakes.ledger.claims import Schedules, Times
from tests.fakes.ledger.overlap import ADVISORY_LOCKS
from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.runs import RUNS, Run, amend, key_columns, move, numbered, run_of
from tests.fakes.ledger.store import Transaction

from harebell.domain.run_states import OPEN, Actor, Reason, RunState
from harebell.storage.runs.label_slots import STATEMENTS

LABEL_SLOTS = "label_slots"
Names = Sequence[str]


@answers(STATEMENTS.try_lock)
def try_lock(tx: Transaction, keys: Sequence[int]) -> Iterator[Record]:
    return ({"k": k} for k, key in enumerate(keys, 1) if tx.try_lock(ADVISORY_LOCKS, key))


@answers(STATEMENTS.slots)
def slots(tx: Transaction, tenants: Names, labels: Names, limit: int) -> Iterator[Record]:
    for tenant, label in zip(tenants, labels, strict=True):
        rows = [row for row in _rows(tx) if (row["tenant"], row["label"]) == (tenant, label)]
        occupied = [row for row in rows if _is_occupied(tx, row)]
        waiting = [row for row in rows if _is_waiting(tx, row)][:limit]
        for row in (*occupied, *waiting):
            yield {
                "tenant": tenant,
                "label": label,
                "scheduled_for": row["key"].scheduled_for,
                "schedule_id": row["key"].schedule_id,
                "due_at": row["due_at"],
                "run_limit": row["run_limit"],
                "role": row["role"],
            }


@answers(STATEMENTS.places)
def places(tx: Transaction, times: Times, schedules: Schedules) -> Iterator[Record]:
    for k, key in numbered(times, schedules):
        row = tx.get(LABEL_SLOTS, key)
        if row is not None and row["role"] != "running":
            yield {"k": k, "due_at": row["due_at"]}


@answers(STATEMENTS.save)
def save(
    tx: Transaction,
    times: Times,
    schedules: Schedules,
    tenants: Names,
    labels: Names,
    limits: Sequence[int],
    due: Sequence[datetime],
    roles: Names,
) -> None:
    columns = ("key", "tenant", "label", "run_limit", "due_at", "role")
    for _, *values in numbered(times, schedules, tenants, labels, limits, due, roles):
        row = dict(zip(columns, values, strict=True)) | {"reserved_until": None}
        tx.put(LABEL_SLOTS, row["key"], row)


@answers(STATEMENTS.mark_waiting)
def mark_waiting(tx: Transaction, times: Times, schedules: Schedules) -> None:
    for _, key in numbered(times, schedules):
        run = run_of(tx, key)
        if run is not None and run.is_waiting:
            amend(tx, run, reason=Reason.WAITING_FOR_LABEL)


@answers(STATEMENTS.wake)
def wake(tx: Transaction, times: Times, schedules: Schedules) -> Iterator[Record]:
    for _, key in numbered(times, schedules):
        run = run_of(tx, key)
        if run is None or run.reason != Reason.WAITING_FOR_LABEL or not tx.try_lock(RUNS, key):
            continue
        changes = {"staged_at": tx.now, "next_attempt_at": tx.now, "reason": None}
        tickets = {"republished_at": None, "first_staged_at": None}
        if move(tx, Actor.LABEL, run, run.state, **changes, **tickets) is not None:
            yield key_columns(run)


@answers(STATEMENTS.reserve)
def reserve(tx: Transaction, times: Times, schedules: Schedules, seconds: float) -> None:
    until = tx.now + timedelta(seconds=seconds)
    for _, key in numbered(times, schedules):
        if (row := tx.get(LABEL_SLOTS, key)) is not None:
            tx.put(LABEL_SLOTS, key, row | {"role": "reserved", "reserved_until": until})


@answers(STATEMENTS.delete_stale)
def delete_stale(tx: Transaction, tenants: Names, labels: Names, includes: object) -> None:
    named = set(zip(tenants, labels, strict=True))
    for row in _rows(tx):
        if (row["tenant"], row["label"]) not in named:
            continue
        if row["role"] == "waiting" and not includes:
            continue
        run = run_of(tx, row["key"])
        keeps = run is not None and (
            run.state is RunState.RUNNING or (run.is_waiting and row["role"] != "running")
        )
        if not keeps:
            tx.put(LABEL_SLOTS, row["key"], None)


@answers(STATEMENTS.find_stalled)
def find_stalled(tx: Transaction, limit: int) -> list[Record]:
    names = sorted({(row["tenant"], row["label"]) for row in _rows(tx)})
    found = [name for name in names if _is_stalled(tx, name)]
    return [{"tenant": tenant, "label": label} for tenant, label in found[:limit]]


def _is_stalled(tx: Transaction, name: tuple[str, str]) -> bool:
    rows = [row for row in _rows(tx) if (row["tenant"], row["label"]) == name]
    runs = [run_of(tx, row["key"]) for row in rows]
    if any(run is None or run.state not in OPEN for run in runs):
        return True
    limits = [
        row["run_limit"]
        for row, run in zip(rows, runs, strict=True)
        if row["role"] == "waiting" and run is not None and run.reason == Reason.WAITING_FOR_LABEL
    ]
    return bool(limits) and sum(_is_occupied(tx, row) for row in rows) < max(limits)


def _rows(tx: Transaction) -> list[dict[str, Any]]:
    return sorted(tx.rows(LABEL_SLOTS), key=lambda row: (row["due_at"], row["key"]))


def _is_occupied(tx: Transaction, row: dict[str, Any]) -> bool:
    run: Run | None = run_of(tx, row["key"])
    if run is None or row["role"] == "waiting":
        return False
    if run.state is RunState.RUNNING:
        return bool(row["role"] == "running")
    until = row["reserved_until"]
    return run.is_waiting and until is not None and until > tx.now


def _is_waiting(tx: Transaction, row: dict[str, Any]) -> bool:
    run = run_of(tx, row["key"])
    return (
        run is not None
        and row["role"] == "waiting"
        and run.is_waiting
        and run.reason == Reason.WAITING_FOR_LABEL
        and not run.has_expired(tx.now)
    )
