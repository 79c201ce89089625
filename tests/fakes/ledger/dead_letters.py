"""The statements of `dlq_inspector/store/dead_letters.py` in memory.

Failure groups are only locked, because no rule of the ledger reads them.
"""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import asyncpg
from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.runs import Run, run_of
from tests.fakes.ledger.store import Transaction

from harebell.contract.ids import RunKey
from harebell.dlq_inspector.model.results import DeadLetterState
from harebell.dlq_inspector.store import groups
from harebell.dlq_inspector.store.dead_letters import STATEMENTS
from harebell.domain.run_states import RunState

DEAD_LETTERS = "dead_letters"
REPLAYS = "replays"
_GROUPS = "failure_groups"

_COLUMNS = (
    "id",
    "tenant",
    "kind",
    "reason",
    "error_code",
    "error",
    "dead_at",
    "payload",
    "body",
    "scheduled_for",
    "schedule_id",
    "replay_number",
    "key",
    "attempts",
    "root_id",
    "group_id",
    "is_imported",
    "older_id",
    "older_root_id",
)
_LOCKED_COLUMNS = (
    "id",
    "kind",
    "state",
    "replay_number",
    "target",
)


@answers(STATEMENTS.insert_dead_letters)
def insert_dead_letters(tx: Transaction, *columns: Sequence[Any]) -> Iterator[Record]:
    for values in zip(*columns, strict=True):
        row = dict(zip(_COLUMNS, values, strict=True))
        tx.lock(DEAD_LETTERS, row["id"])
        older, root = (tx.get(DEAD_LETTERS, row[name]) for name in ("older_id", "older_root_id"))
        is_new = tx.get(DEAD_LETTERS, row["id"]) is None and not _is_of(older, row["tenant"])
        if is_new:
            stored = row | {"state": DeadLetterState.OPEN, "target": None}
            if _is_of(root, row["tenant"]):
                stored["root_id"] = row["older_root_id"]
            tx.put(DEAD_LETTERS, row["id"], stored)
        conflicts = older is not None and older["tenant"] != row["tenant"]
        yield {"id": row["id"], "is_new": is_new, "conflicts": conflicts}


@answers(STATEMENTS.reopen_messages)
def reopen_messages(_: Transaction, *_columns: Sequence[Any]) -> Iterator[Record]:
    """Reopen nothing, because the simulation replays only runs."""
    yield from ()


def _is_of(row: Record | None, tenant: str) -> bool:
    return row is not None and row["tenant"] == tenant


@answers(groups.STATEMENTS.record_failures)
def record_failures(tx: Transaction, group_ids: Sequence[UUID], *_: Any) -> None:
    for group in group_ids:
        tx.lock(_GROUPS, group)


@answers(STATEMENTS.lock_dead_letters)
def lock_dead_letters(tx: Transaction, tenant: str, ids: Sequence[UUID]) -> Iterator[Record]:
    for id_ in sorted(set(ids)):
        row = tx.get(DEAD_LETTERS, id_)
        if row is None or row["tenant"] != tenant:
            continue
        tx.lock(DEAD_LETTERS, id_)
        run = _run_of(tx, row)
        yield {name: row[name] for name in _LOCKED_COLUMNS} | {
            "scheduled_for": None if run is None else run.scheduled_for,
            "schedule_id": None if run is None else run.schedule_id,
            "override": None if run is None else run.override,
            "is_unstarted": run is not None and _is_unstarted(run, row["replay_number"]),
        }


def _run_of(tx: Transaction, row: Record) -> Run | None:
    if row["schedule_id"] is None:
        return None
    run = run_of(tx, RunKey(row["scheduled_for"], row["schedule_id"]))
    return run if run is not None and run.tenant == row["tenant"] else None


def _is_unstarted(run: Run, replay_number: int) -> bool:
    return (run.state, run.attempt, run.replay_number) == (RunState.STAGED, 0, replay_number + 1)


@answers(STATEMENTS.record_replays)
def record_replays(
    tx: Transaction, tenant: str, ids: Sequence[UUID], actor: str | None, note: str | None
) -> None:
    for id_ in ids:
        row = tx.get(DEAD_LETTERS, id_)
        if not _is_of(row, tenant):
            continue
        if tx.get(REPLAYS, id_) is not None:
            raise asyncpg.UniqueViolationError(f"The replay of the dead letter {id_} exists.")
        tx.put(DEAD_LETTERS, id_, row | {"state": DeadLetterState.REPLAYED})
        replay = {"replay_number": row["replay_number"] + 1, "actor": actor, "note": note}
        tx.put(REPLAYS, id_, replay | {"replayed_at": tx.now})


@answers(STATEMENTS.discard)
def discard(
    tx: Transaction, tenant: str, ids: Sequence[UUID], actor: str | None, note: str | None
) -> None:
    discarded = {"discarded_at": tx.now, "discarded_by": actor, "discard_note": note}
    for id_ in ids:
        row = tx.get(DEAD_LETTERS, id_)
        if _is_of(row, tenant):
            tx.put(DEAD_LETTERS, id_, row | {"state": DeadLetterState.DISCARDED} | discarded)
