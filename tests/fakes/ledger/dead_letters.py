"""What the desk of dead letters asks of the ledger in memory: letters kept, replayed, dropped.

Groups of failures are only locked: what is told of them, only people read.
"""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import asyncpg
from tests.fakes.ledger.claims import Times, Schedules
from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.runs import Run, move, numbered, run_of
from tests.fakes.ledger.schedules import STATES
from tests.fakes.ledger.store import Transaction

from harebell.contract.ids import RunKey
from harebell.dlq_inspector.model.results import DeadLetterState
from harebell.dlq_inspector.store import groups
from harebell.dlq_inspector.store.dead_letters import STATEMENTS
from harebell.domain.run_states import Actor, RunState

DEAD_LETTERS = "dead_letters"
REPLAYS = "replays"
_GROUPS = "failure_groups"

_LETTER = (
    *("id", "tenant", "kind", "reason", "error_code", "error", "dead_at", "payload", "body"),
    *("scheduled_for", "schedule_id", "replay_number", "key", "attempts", "root_id", "group_id"),
)
_KEPT = (
    *("scheduled_for", "schedule_id", "tenant", "version", "seq", "pool", "lane", "priority"),
    *("due_at", "origin", "override", "state"),
)


@answers(STATEMENTS.insert_dead_letters)
def keep(tx: Transaction, *columns: Sequence[Any]) -> Iterator[Record]:
    for values in zip(*columns, strict=True):
        letter = dict(zip(_LETTER, values, strict=True))
        tx.lock(DEAD_LETTERS, letter["id"])
        if tx.get(DEAD_LETTERS, letter["id"]) is None:
            tx.put(DEAD_LETTERS, letter["id"], letter | {"state": DeadLetterState.OPEN, "target": None})
            yield {"id": letter["id"]}


@answers(groups.STATEMENTS.record_failures)
def note(tx: Transaction, ids: Sequence[UUID], *_: Any) -> None:
    for group in ids:
        tx.lock(_GROUPS, group)


@answers(STATEMENTS.lock_dead_letters)
def lock(tx: Transaction, tenant: str, letters: Sequence[UUID]) -> Iterator[Record]:
    for id_ in sorted(set(letters)):
        letter = tx.get(DEAD_LETTERS, id_)
        if letter is None or letter["tenant"] != tenant:
            continue
        tx.lock(DEAD_LETTERS, id_)
        run = _run_of(tx, letter)
        names = ("id", "kind", "state", "scheduled_for", "schedule_id", "replay_number", "target")
        told = {name: letter[name] for name in names}
        yield told | {
            "override": None if run is None else run.override,
            "is_unstarted": run is not None and _is_unstarted(run, letter["replay_number"]),
        }


def _run_of(tx: Transaction, letter: Record) -> Run | None:
    is_run = letter["schedule_id"] is not None
    return run_of(tx, RunKey(letter["scheduled_for"], letter["schedule_id"])) if is_run else None


def _is_unstarted(run: Run, replay_number: int) -> bool:
    return (run.state, run.attempt, run.replay_number) == (RunState.STAGED, 0, replay_number + 1)


@answers(STATEMENTS.record_replays)
def record(tx: Transaction, letters: Sequence[UUID], actor: str | None, said: str | None) -> None:
    for id_ in letters:
        letter = tx.get(DEAD_LETTERS, id_)
        if tx.get(REPLAYS, id_) is not None:
            raise asyncpg.UniqueViolationError(f"{id_} has been replayed")
        tx.put(DEAD_LETTERS, id_, letter | {"state": DeadLetterState.REPLAYED})
        replay = {"replay_number": letter["replay_number"] + 1, "actor": actor, "note": said}
        tx.put(REPLAYS, id_, replay | {"replayed_at": tx.now})


@answers(STATEMENTS.discard)
def drop(tx: Transaction, letters: Sequence[UUID], actor: str | None, said: str | None) -> None:
    dropped = {"discarded_at": tx.now, "discarded_by": actor, "discard_note": said}
    for id_ in letters:
        tx.put(DEAD_LETTERS, id_, tx.get(DEAD_LETTERS, id_) | {"state": DeadLetterState.DISCARDED} | dropped)


@answers(STATEMENTS.lock_schedules)
def lock_schedules(tx: Transaction, schedules: Schedules) -> None:
    for schedule in sorted(schedules):
        if tx.get(STATES, schedule) is not None:
            tx.lock(STATES, schedule)


@answers(STATEMENTS.stage_replays)
def stage_replays(
    tx: Transaction, tenant: str, letters: Sequence[UUID], *columns: Any
) -> Iterator[Record]:
    moments, schedules, replay_number, pool, overrides = columns
    for place, key, number in numbered(moments, schedules, replay_number):
        run = run_of(tx, key)
        if run is None or (run.state, run.replay_number, run.tenant) != (
            RunState.DEAD,
            number,
            tenant,
        ):
            continue
        fresh = Run(**{name: getattr(run, name) for name in _KEPT})
        staged: dict[str, Any] = {
            "replay_number": number + 1,
            "next_attempt_at": tx.now,
            "staged_at": tx.now,
        }
        staged["override"] = overrides[place - 1]
        moved = staged if pool is None else {**staged, "pool": pool}
        move(tx, Actor.REPLAY, fresh, RunState.STAGED, **moved)
        yield {"id": letters[place - 1]}


@answers(STATEMENTS.reopen_runs)
def reopen(tx: Transaction, schedules: Schedules, moments: Times) -> None:
    for _, key in numbered(moments, schedules):
        state = tx.get(STATES, key.schedule_id)
        if state is not None and key.scheduled_for not in state["open_runs"]:
            opened = [*state["open_runs"], key.scheduled_for]
            tx.put(STATES, key.schedule_id, state | {"open_runs": opened})
