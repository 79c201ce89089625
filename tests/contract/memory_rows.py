"""The statements of the contract tests in memory."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tests.contract.ledger_rows import (
    FIND_RUN,
    FIND_SEQS,
    PUT_RUN,
    RAISE_EPOCH,
    SET_TIMES,
)
from tests.contract.overlap_claimers import FIND_SLOTS, INSERT_VERSION
from tests.fakes.ledger.claims import ATTEMPTS
from tests.fakes.ledger.label_slots import LABEL_SLOTS
from tests.fakes.ledger.overlap import OVERLAP_SLOTS
from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.runs import RUNS, Run, all_runs, amend, run_of
from tests.fakes.ledger.schedules import VERSIONS
from tests.fakes.ledger.store import Transaction

from harebell.contract.ids import RunKey
from harebell.domain.run_states import RunState

_INSERTED_COLUMNS = (
    "scheduled_for",
    "schedule_id",
    "version",
    "seq",
    "state",
    "reason",
    "attempt",
    "expires_at",
    "stop_requested_at",
    "lease_holder",
    "lease_seconds",
    "lease_until",
    "next_attempt_at",
    "finished_at",
    "outcome",
)


@answers(PUT_RUN)
def insert_run(tx: Transaction, *values: Any) -> None:
    columns = dict(zip(_INSERTED_COLUMNS, values, strict=True))
    columns["state"] = RunState(columns["state"])
    run = Run(
        tenant="acme",
        pool="default",
        lane="normal",
        priority=5,
        due_at=columns["scheduled_for"],
        staged_at=tx.now,
        **columns,
    )
    tx.put(RUNS, run.key, run)


@answers(RAISE_EPOCH)
def raise_epoch(tx: Transaction) -> None:
    tx.store.epoch += 1


@answers(SET_TIMES)
def set_times(
    tx: Transaction, time: datetime, schedule: UUID, due: float, staged: float | None
) -> None:
    if (run := run_of(tx, RunKey(time, schedule))) is not None:
        due_at = tx.now + timedelta(seconds=due)
        retry_at = None if run.next_attempt_at is None else due_at
        staged_at = None if staged is None else tx.now + timedelta(seconds=staged)
        amend(tx, run, due_at=due_at, staged_at=staged_at, next_attempt_at=retry_at)


@answers(FIND_SEQS)
def find_seqs(tx: Transaction) -> list[Record]:
    return [asdict(run) for run in all_runs(tx)]


@answers(FIND_RUN)
def find_run(tx: Transaction, time: datetime, schedule: UUID) -> Iterator[Record]:
    if (run := run_of(tx, RunKey(time, schedule))) is not None:
        yield asdict(run)


@answers("SELECT now()")
def now(tx: Transaction) -> list[Record]:
    return [{"now": tx.now}]


@answers("SELECT FROM runs WHERE schedule_id = $1 FOR UPDATE")
def lock_runs(tx: Transaction, schedule: UUID) -> None:
    for run in all_runs(tx):
        if run.schedule_id == schedule:
            tx.lock(RUNS, run.key)


@answers("SELECT schedule_id, reason FROM runs WHERE stop_requested_at IS NOT NULL")
def find_stop_requests(tx: Transaction) -> list[Record]:
    return [asdict(run) for run in all_runs(tx) if run.stop_requested_at is not None]


@answers("SELECT schedule_id FROM runs WHERE finished_at IS NULL")
def find_unfinished(tx: Transaction) -> list[Record]:
    return [asdict(run) for run in all_runs(tx) if run.finished_at is None]


@answers("SELECT count(*) FROM attempts")
def count_attempts(tx: Transaction) -> list[Record]:
    return [{"count": len(list(tx.rows(ATTEMPTS)))}]


@answers("SELECT duration_ms FROM attempts")
def find_durations(tx: Transaction) -> list[Record]:
    return [{"duration_ms": attempt["duration_ms"]} for attempt in tx.rows(ATTEMPTS)]


@answers(INSERT_VERSION)
def insert_version(
    tx: Transaction, schedule: UUID, number: int, run_spec: str, at: datetime
) -> None:
    tx.put(VERSIONS, (schedule, number), {"run_spec": run_spec, "accepted_at": at})


@answers(FIND_SLOTS)
def find_slots(tx: Transaction, schedule: UUID) -> list[Record]:
    slots = [slot for slot in tx.rows(OVERLAP_SLOTS) if slot["key"].schedule_id == schedule]
    return [{"scheduled_for": s["key"].scheduled_for, "role": s["role"]} for s in slots]


@answers("UPDATE runs SET state = 'cancelled', finished_at = now() WHERE scheduled_for = $1")
def cancel(tx: Transaction, time: datetime) -> None:
    for run in all_runs(tx):
        if run.scheduled_for == time:
            amend(tx, run, state=RunState.CANCELLED, finished_at=tx.now)


@answers("UPDATE runs SET state = 'dead', finished_at = now(), seq = seq + 1")
def end_all(tx: Transaction) -> None:
    for run in all_runs(tx):
        amend(tx, run, state=RunState.DEAD, finished_at=tx.now, seq=run.seq + 1)


@answers("UPDATE runs SET state = 'staged', seq = $1, finished_at = NULL WHERE scheduled_for = $2")
def stage_as(tx: Transaction, seq: int, time: datetime) -> None:
    for run in all_runs(tx):
        if run.scheduled_for == time:
            amend(tx, run, state=RunState.STAGED, finished_at=None, seq=seq)


@answers("UPDATE runs SET staged_at = due_at")
def stage_when_due(tx: Transaction) -> None:
    for run in all_runs(tx):
        amend(tx, run, staged_at=run.due_at)


@answers("UPDATE runs SET staged_at = now() - interval '1 minute'")
def stage_long_ago(tx: Transaction) -> None:
    for run in all_runs(tx):
        amend(tx, run, staged_at=tx.now - timedelta(minutes=1))


@answers("UPDATE label_slots SET reserved_until = now() - interval '1 second'")
def end_reservations(tx: Transaction) -> None:
    for row in list(tx.rows(LABEL_SLOTS)):
        if row["reserved_until"] is not None:
            until = tx.now - timedelta(seconds=1)
            tx.put(LABEL_SLOTS, row["key"], row | {"reserved_until": until})
