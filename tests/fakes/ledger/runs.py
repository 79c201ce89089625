"""Rows of runs in memory, and the only function that moves a run between states."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from tests.fakes.ledger.store import Transaction

from harebell.contract.ids import RunKey
from harebell.domain.run_states import (
    RESTAGEABLE,
    Actor,
    Reason,
    RunState,
    fencing_token,
    is_allowed,
)

RUNS = "runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A row of `runs`, with one field for each column."""

    scheduled_for: datetime
    schedule_id: UUID
    tenant: str
    version: int
    seq: int
    pool: str
    lane: str
    priority: int
    state: RunState
    due_at: datetime
    origin: str | None = None
    override: str | None = None
    replay_number: int = 0
    attempt: int = 0
    reason: str | None = None
    outcome: str | None = None
    expires_at: datetime | None = None
    next_attempt_at: datetime | None = None
    lease_holder: str | None = None
    lease_until: datetime | None = None
    lease_seconds: float | None = None
    stop_requested_at: datetime | None = None
    staged_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    range_until: datetime | None = None
    range_count: int | None = None
    failed_probes: int | None = None
    republished_at: datetime | None = None
    first_staged_at: datetime | None = None
    epoch: int | None = None
    delegated_until: datetime | None = None
    progress: dict[str, Any] | None = None
    progress_at: datetime | None = None

    @property
    def first_ticket_at(self) -> datetime | None:
        """Return `staged_at` without the republications of the ticket."""
        return self.first_staged_at if self.is_republished else self.staged_at

    @property
    def is_republished(self) -> bool:
        return self.staged_at is not None and self.republished_at == self.staged_at

    @property
    def token(self) -> int:
        return fencing_token(self.epoch, self.seq)

    @property
    def key(self) -> RunKey:
        return RunKey(self.scheduled_for, self.schedule_id)

    @property
    def is_waiting(self) -> bool:
        """Return whether the run waits for a claim."""
        return self.state in (RunState.STAGED, RunState.RETRYING)

    @property
    def next_due(self) -> datetime:
        return self.next_attempt_at or self.due_at

    @property
    def is_restageable(self) -> bool:
        is_unstaged = self.state is RunState.CANCELLED and self.reason in RESTAGEABLE
        return is_unstaged and self.attempt == 0

    @property
    def is_unstaged(self) -> bool:
        return self.is_restageable and self.reason != Reason.CANCELLED

    @property
    def stop_reason(self) -> str | None:
        return None if self.stop_requested_at is None else self.reason or Reason.CANCELLED

    @property
    def checkpoint(self) -> str | None:
        """The text of the checkpoint in the form of jsonb, or None without one."""
        found = (self.progress or {}).get("checkpoint")
        return None if found is None else json.dumps(found, ensure_ascii=False)

    def with_progress(self, text: str | None, now: datetime) -> dict[str, Any]:
        """Return the changed columns after a report."""
        if text is None:
            return {}
        return {"progress": {**(self.progress or {}), **json.loads(text)}, "progress_at": now}

    def has_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now


def key_columns(run: Run) -> dict[str, Any]:
    return {"scheduled_for": run.scheduled_for, "schedule_id": run.schedule_id}


def unnested(*columns: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of an `unnest` of several arrays. An empty array is filled with nulls."""
    longest = max(map(len, columns))
    return zip(*(each or [None] * longest for each in columns), strict=True)


def numbered(
    times: Sequence[datetime], schedules: Sequence[UUID], *columns: Sequence[Any]
) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of `unnest ... WITH ORDINALITY`: the number from 1, the key, the rest."""
    keys = map(RunKey, times, schedules)
    for number, (key, *rest) in enumerate(unnested(list(keys), *columns), 1):
        yield number, key, *rest


def run_of(transaction: Transaction, key: RunKey) -> Run | None:
    run: Run | None = transaction.get(RUNS, key)
    return run


def all_runs(transaction: Transaction) -> list[Run]:
    return sorted(transaction.rows(RUNS), key=lambda run: run.key)


def amend(transaction: Transaction, run: Run, **changes: Any) -> Run:
    """Change the row without a transition, so `seq` stays the same."""
    after = replace(run, **changes)
    transaction.put(RUNS, run.key, after)
    return after


def move(
    transaction: Transaction, actor: Actor, run: Run, to: RunState, **changes: Any
) -> Run | None:
    """Move the run to the state, or return None if the model forbids the transition."""
    if not is_allowed(actor, run.state, to):
        return None
    return amend(transaction, run, state=to, seq=run.seq + 1, **changes)
