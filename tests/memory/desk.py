"""What the desk of dead letters asks of the ledger in memory: a new series of a dead run."""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from tests.memory.claims import Moments, Schedules
from tests.memory.pool import Record, answers
from tests.memory.runs import Run, move, numbered, run_of
from tests.memory.schedules import STATES
from tests.memory.store import Transaction

from harebell.dlq_inspector.store import _BEGIN_SERIES, _LOCK_SCHEDULES, _REOPEN
from harebell.kernel.ledger import Actor, RunState

_KEPT = (
    *("scheduled_for", "schedule_id", "tenant", "version", "seq", "pool", "lane", "priority"),
    *("due_at", "origin", "override", "state"),
)


@answers(_LOCK_SCHEDULES)
def lock_schedules(tx: Transaction, schedules: Schedules) -> None:
    for schedule in sorted(schedules):
        if tx.get(STATES, schedule) is not None:
            tx.lock(STATES, schedule)


@answers(_BEGIN_SERIES)
def begin_series(
    tx: Transaction, tenant: str, letters: Sequence[UUID], *columns: Any
) -> Iterator[Record]:
    moments, schedules, series, pool, overrides = columns
    for place, key, number in numbered(moments, schedules, series):
        run = run_of(tx, key)
        if run is None or (run.state, run.series, run.tenant) != (RunState.DEAD, number, tenant):
            continue
        fresh = Run(**{name: getattr(run, name) for name in _KEPT})
        staged: dict[str, Any] = {
            "series": number + 1,
            "next_attempt_at": tx.now,
            "staged_at": tx.now,
        }
        staged["override"] = overrides[place - 1]
        moved = staged if pool is None else {**staged, "pool": pool}
        move(tx, Actor.DESK, fresh, RunState.STAGED, **moved)
        yield {"id": letters[place - 1]}


@answers(_REOPEN)
def reopen(tx: Transaction, schedules: Schedules, moments: Moments) -> None:
    for _, key in numbered(moments, schedules):
        state = tx.get(STATES, key.schedule_id)
        if state is not None and key.scheduled_for not in state["open_runs"]:
            opened = [*state["open_runs"], key.scheduled_for]
            tx.put(STATES, key.schedule_id, state | {"open_runs": opened})
