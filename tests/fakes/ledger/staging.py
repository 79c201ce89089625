"""What a ticker asks of the ledger in memory: runs come to be, are withdrawn, are changed."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from tests.fakes.ledger.claims import Times, Schedules
from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.runs import RUNS, Run, amend, move, numbered, run_of
from tests.fakes.ledger.store import Transaction

from harebell.domain.run_states import Actor, Reason, RunState
from harebell.storage.runs.staging import _CANCEL, _RENEW, _REQUEST_STOP, _RESOLVE, _SKIP, _STAGE


@answers(_STAGE)
def stage(
    tx: Transaction, moments: Times, schedules: Schedules, *columns: Any
) -> Iterator[Record]:
    for _, key, *told in numbered(moments, schedules, *columns):
        tenant, version, seq, pool, lane, priority, origin, due_at, expires_at, override = told
        placed = {"version": version, "pool": pool, "lane": lane, "priority": priority}
        placed |= {"due_at": due_at, "expires_at": expires_at, "staged_at": tx.now}
        before = run_of(tx, key)
        after: Run | None = None
        if before is None:
            after = Run(
                scheduled_for=key.scheduled_for, schedule_id=key.schedule_id, tenant=tenant,
                seq=seq, state=RunState.STAGED, origin=origin, override=override, **placed,
            )  # fmt: skip
            tx.put(RUNS, key, after)
        elif before.is_restageable:
            after = move(
                tx, Actor.TICKER, before, RunState.STAGED, **placed,
                reason=None, outcome=None, finished_at=None, stop_requested_at=None,
            )  # fmt: skip
        if after is not None:
            yield {
                "scheduled_for": moments[_ - 1],
                "schedule_id": schedules[_ - 1],
                "seq": after.seq,
            }


@answers(_SKIP)
def skip(tx: Transaction, moments: Times, schedules: Schedules, *columns: Any) -> None:
    for _, key, *told in numbered(moments, schedules, *columns):
        tenant, version, pool, lane, priority, reason, until, count = told
        ended = {"reason": reason, "outcome": RunState.SKIPPED, "finished_at": tx.now}
        ended |= {"range_until": until, "range_count": count, "version": version}
        before = run_of(tx, key)
        if before is None:
            skipped = Run(
                scheduled_for=key.scheduled_for, schedule_id=key.schedule_id, tenant=tenant, seq=1,
                pool=pool, lane=lane, priority=priority, state=RunState.SKIPPED,
                due_at=key.scheduled_for, **ended,
            )  # fmt: skip
            tx.put(RUNS, key, skipped)
        elif before.is_restageable:
            move(tx, Actor.TICKER, before, RunState.SKIPPED, **ended)


@answers(_CANCEL)
def cancel(
    tx: Transaction,
    moments: Times,
    schedules: Schedules,
    reasons: Sequence[str],
    states: Sequence[str],
) -> None:
    for _, key, reason, state in numbered(moments, schedules, reasons, states):
        run = run_of(tx, key)
        if run is not None and run.is_waiting:
            ended = {"finished_at": tx.now, "next_attempt_at": None}
            move(tx, Actor.TICKER, run, RunState(state), reason=reason, outcome=state, **ended)


@answers(_RENEW)
def take_version(
    tx: Transaction,
    moments: Times,
    schedules: Schedules,
    versions: Sequence[int],
    pools: Sequence[str],
    lanes: Sequence[str],
    priorities: Sequence[int],
    expires: Sequence[datetime | None],
) -> None:
    columns = (versions, pools, lanes, priorities, expires)
    for _, key, version, pool, lane, priority, until in numbered(moments, schedules, *columns):
        run = run_of(tx, key)
        if run is not None and run.state is RunState.STAGED and run.attempt == 0:
            expires_at = None if run.origin == "backfill" else until
            placed = {"version": version, "pool": pool, "lane": lane, "priority": priority}
            move(
                tx, Actor.TICKER, run, RunState.STAGED,
                staged_at=tx.now, expires_at=expires_at, **placed,
            )  # fmt: skip


@answers(_RESOLVE)
def resolve(tx: Transaction, moments: Times, schedules: Schedules, states: Sequence[str]) -> None:
    for _, key, state in numbered(moments, schedules, states):
        run = run_of(tx, key)
        if run is None or run.state is not RunState.UNRESOLVED:
            continue
        to, cleared = RunState(state), {"lease_holder": None, "expires_at": None}
        if to is RunState.STAGED:
            changes: dict[str, Any] = {
                "replay_number": run.replay_number + 1,
                "attempt": 0,
                "finished_at": None,
            }
            changes |= {"reason": None, "outcome": None}
            changes |= {"next_attempt_at": tx.now, "staged_at": tx.now}
        else:
            changes = {"reason": Reason.MANUAL, "outcome": state, "next_attempt_at": None}
        move(tx, Actor.TICKER, run, to, started_at=None, **cleared, **changes)


@answers(_REQUEST_STOP)
def request_stop(
    tx: Transaction,
    moments: Times,
    schedules: Sequence[UUID],
    reasons: Sequence[str | None],
) -> None:
    for _, key, reason in numbered(moments, schedules, reasons):
        run = run_of(tx, key)
        if run is not None and run.state is RunState.RUNNING:
            asked_at = None if reason is None else tx.now
            amend(tx, run, stop_requested_at=asked_at, reason=reason)
