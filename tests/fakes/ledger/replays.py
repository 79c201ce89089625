"""The statements of `storage/runs/replays.py` in memory."""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from tests.fakes.ledger.claims import Schedules, Times
from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.runs import Run, move, numbered, run_of
from tests.fakes.ledger.schedules import STATES
from tests.fakes.ledger.store import Transaction

from harebell.domain.run_states import Actor, RunState
from harebell.storage.runs.replays import STATEMENTS

# A replay keeps these columns of a dead run.
_KEPT_COLUMNS = (
    "scheduled_for",
    "schedule_id",
    "tenant",
    "version",
    "seq",
    "pool",
    "lane",
    "priority",
    "due_at",
    "origin",
    "override",
    "state",
)


@answers(STATEMENTS.lock_schedules)
def lock_schedules(tx: Transaction, schedules: Schedules) -> None:
    for schedule in sorted(schedules):
        if tx.get(STATES, schedule) is not None:
            tx.lock(STATES, schedule)


@answers(STATEMENTS.stage)
def stage_replays(
    tx: Transaction, tenant: str, ids: Sequence[UUID], *columns: Any
) -> Iterator[Record]:
    times, schedules, replay_numbers, pool, overrides = columns
    for k, key, number in numbered(times, schedules, replay_numbers):
        run = run_of(tx, key)
        required = (RunState.DEAD, number, tenant)
        if run is None or (run.state, run.replay_number, run.tenant) != required:
            continue
        cleared = Run(**{name: getattr(run, name) for name in _KEPT_COLUMNS})
        move(
            tx,
            Actor.REPLAY,
            cleared,
            RunState.STAGED,
            replay_number=number + 1,
            next_attempt_at=tx.now,
            staged_at=tx.now,
            override=overrides[k - 1],
            pool=pool or run.pool,
        )
        yield {"id": ids[k - 1]}


@answers(STATEMENTS.reopen)
def reopen_runs(tx: Transaction, schedules: Schedules, times: Times) -> None:
    for _, key in numbered(times, schedules):
        state = tx.get(STATES, key.schedule_id)
        if state is not None and key.scheduled_for not in state["open_runs"]:
            columns: dict[str, Any] = {"open_runs": [*state["open_runs"], key.scheduled_for]}
            columns |= {name: max(0, state[name] - 1) for name in ("executions", "failures")}
            tx.put(STATES, key.schedule_id, state | columns)
