"""What the contract tests themselves ask of a ledger, answered from memory: rows put and read."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tests.contract.ledger_rows import PUT, ROW, SEQS
from tests.contract.overlap_claimers import TURNS as TURNS_OF
from tests.contract.overlap_claimers import WRITE_VERSION
from tests.fakes.ledger.claims import ATTEMPTS
from tests.fakes.ledger.overlap import OVERLAP_SLOTS
from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.runs import RUNS, Run, all_runs, amend, run_of
from tests.fakes.ledger.schedules import VERSIONS
from tests.fakes.ledger.store import Transaction

from harebell.contract.ids import RunKey
from harebell.domain.run_states import RunState

_PUT_AS = (
    *("scheduled_for", "schedule_id", "version", "seq", "state", "reason", "attempt"),
    *("expires_at", "stop_requested_at", "lease_holder", "lease_seconds", "lease_until"),
    *("next_attempt_at", "finished_at", "outcome"),
)


@answers(PUT)
def put(tx: Transaction, *values: Any) -> None:
    told = dict(zip(_PUT_AS, values, strict=True))
    told["state"] = RunState(told["state"])
    run = Run(
        tenant="acme", pool="default", lane="normal", priority=5, due_at=told["scheduled_for"],
        staged_at=tx.now, **told,
    )  # fmt: skip
    tx.put(RUNS, run.key, run)


@answers(SEQS)
def seqs(tx: Transaction) -> list[Record]:
    return [asdict(run) for run in all_runs(tx)]


@answers(ROW)
def row(tx: Transaction, moment: datetime, schedule: UUID) -> Iterator[Record]:
    if (run := run_of(tx, RunKey(moment, schedule))) is not None:
        yield asdict(run)


@answers("SELECT now()")
def now(tx: Transaction) -> list[Record]:
    return [{"now": tx.now}]


@answers("SELECT FROM runs WHERE schedule_id = $1 FOR UPDATE")
def lock(tx: Transaction, schedule: UUID) -> None:
    for run in all_runs(tx):
        if run.schedule_id == schedule:
            tx.lock(RUNS, run.key)


@answers("SELECT schedule_id, reason FROM runs WHERE stop_requested_at IS NOT NULL")
def asked_to_stop(tx: Transaction) -> list[Record]:
    return [asdict(run) for run in all_runs(tx) if run.stop_requested_at is not None]


@answers("SELECT schedule_id FROM runs WHERE finished_at IS NULL")
def unfinished(tx: Transaction) -> list[Record]:
    return [asdict(run) for run in all_runs(tx) if run.finished_at is None]


@answers("SELECT count(*) FROM attempts")
def attempts(tx: Transaction) -> list[Record]:
    return [{"count": len(list(tx.rows(ATTEMPTS)))}]


@answers("SELECT duration_ms FROM attempts")
def durations(tx: Transaction) -> list[Record]:
    return [{"duration_ms": kept["duration_ms"]} for kept in tx.rows(ATTEMPTS)]


@answers(WRITE_VERSION)
def write_version(tx: Transaction, schedule: UUID, number: int, work: str, at: datetime) -> None:
    tx.put(VERSIONS, (schedule, number), {"run_spec": work, "accepted_at": at})


@answers(TURNS_OF)
def turns_of(tx: Transaction, schedule: UUID) -> list[Record]:
    taken = [turn for turn in tx.rows(OVERLAP_SLOTS) if turn["key"].schedule_id == schedule]
    return [{"scheduled_for": t["key"].scheduled_for, "role": t["role"]} for t in taken]


@answers("UPDATE runs SET state = 'cancelled', finished_at = now() WHERE scheduled_for = $1")
def cancel(tx: Transaction, moment: datetime) -> None:
    for run in all_runs(tx):
        if run.scheduled_for == moment:
            amend(tx, run, state=RunState.CANCELLED, finished_at=tx.now)


@answers("UPDATE runs SET state = 'dead', finished_at = now(), seq = seq + 1")
def end_all(tx: Transaction) -> None:
    for run in all_runs(tx):
        amend(tx, run, state=RunState.DEAD, finished_at=tx.now, seq=run.seq + 1)


@answers("UPDATE runs SET state = 'staged', seq = $1, finished_at = NULL WHERE scheduled_for = $2")
def stage_as(tx: Transaction, seq: int, moment: datetime) -> None:
    for run in all_runs(tx):
        if run.scheduled_for == moment:
            amend(tx, run, state=RunState.STAGED, finished_at=None, seq=seq)


@answers("UPDATE runs SET staged_at = due_at")
def stage_when_due(tx: Transaction) -> None:
    for run in all_runs(tx):
        amend(tx, run, staged_at=run.due_at)


@answers("UPDATE runs SET staged_at = now() - interval '1 minute'")
def stage_long_ago(tx: Transaction) -> None:
    for run in all_runs(tx):
        amend(tx, run, staged_at=tx.now - timedelta(minutes=1))
