"""The statements of `storage/runs/staging.py` in memory."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from tests.fakes.ledger.claims import Schedules, Times
from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.runs import RUNS, Run, amend, key_columns, move, numbered, run_of
from tests.fakes.ledger.store import Transaction

from harebell.domain.run_states import Actor, Reason, RunState
from harebell.storage.runs.staging import STATEMENTS


@answers(STATEMENTS.stage)
def stage(tx: Transaction, times: Times, schedules: Schedules, *columns: Any) -> Iterator[Record]:
    for _, key, *values in numbered(times, schedules, *columns):
        tenant, version, seq, pool, lane, priority, origin, due_at, expires_at, override = values
        staged = {"version": version, "pool": pool, "lane": lane, "priority": priority}
        staged |= {"due_at": due_at, "expires_at": expires_at, "staged_at": tx.now}
        before = run_of(tx, key)
        after: Run | None = None
        if before is None:
            after = Run(
                scheduled_for=key.scheduled_for,
                schedule_id=key.schedule_id,
                tenant=tenant,
                seq=seq,
                state=RunState.STAGED,
                origin=origin,
                override=override,
                **staged,
            )
            tx.put(RUNS, key, after)
        elif before.is_restageable:
            cleared = dict.fromkeys(("reason", "outcome", "finished_at", "stop_requested_at"))
            staged["override"] = before.override if override is None else override
            after = move(tx, Actor.RESTAGE, before, RunState.STAGED, **staged, **cleared)
        if after is not None:
            yield key_columns(after) | {"seq": after.seq}


@answers(STATEMENTS.skip)
def skip(tx: Transaction, times: Times, schedules: Schedules, *columns: Any) -> None:
    for _, key, *values in numbered(times, schedules, *columns):
        tenant, version, pool, lane, priority, reason, until, count = values
        skipped = {"reason": reason, "outcome": RunState.SKIPPED, "finished_at": tx.now}
        skipped |= {"range_until": until, "range_count": count, "version": version}
        before = run_of(tx, key)
        if before is None:
            run = Run(
                scheduled_for=key.scheduled_for,
                schedule_id=key.schedule_id,
                tenant=tenant,
                seq=1,
                pool=pool,
                lane=lane,
                priority=priority,
                state=RunState.SKIPPED,
                due_at=key.scheduled_for,
                **skipped,
            )
            tx.put(RUNS, key, run)
        elif before.is_restageable:
            move(tx, Actor.RESTAGE, before, RunState.SKIPPED, **skipped)


@answers(STATEMENTS.cancel)
def cancel(
    tx: Transaction,
    times: Times,
    schedules: Schedules,
    reasons: Sequence[str],
    states: Sequence[str],
) -> None:
    for _, key, reason, state in numbered(times, schedules, reasons, states):
        run = run_of(tx, key)
        if run is not None and run.is_waiting:
            ended = {"finished_at": tx.now, "next_attempt_at": None}
            move(tx, Actor.TICKER, run, RunState(state), reason=reason, outcome=state, **ended)


@answers(STATEMENTS.move_to_version)
def move_to_version(
    tx: Transaction,
    times: Times,
    schedules: Schedules,
    versions: Sequence[int],
    pools: Sequence[str],
    lanes: Sequence[str],
    priorities: Sequence[int],
    expiries: Sequence[datetime | None],
    due_times: Sequence[datetime | None],
) -> None:
    columns = (versions, pools, lanes, priorities, expiries, due_times)
    for _, key, version, pool, lane, priority, until, due in numbered(times, schedules, *columns):
        run = run_of(tx, key)
        if run is not None and run.state is RunState.STAGED and run.attempt == 0:
            is_released = due is not None and run.reason == Reason.BLACKOUT
            move(
                tx,
                Actor.TICKER,
                run,
                RunState.STAGED,
                staged_at=tx.now,
                expires_at=None if run.origin == "backfill" else until,
                due_at=due or run.due_at,
                next_attempt_at=None if is_released else run.next_attempt_at,
                reason=None if is_released else run.reason,
                version=version,
                pool=pool,
                lane=lane,
                priority=priority,
            )


@answers(STATEMENTS.resolve)
def resolve(tx: Transaction, times: Times, schedules: Schedules, states: Sequence[str]) -> None:
    for _, key, state in numbered(times, schedules, states):
        run = run_of(tx, key)
        if run is None or run.state is not RunState.UNRESOLVED:
            continue
        changes: dict[str, Any]
        if RunState(state) is RunState.STAGED:
            changes = {
                "replay_number": run.replay_number + 1,
                "attempt": 0,
                "failed_probes": None,
                "finished_at": None,
                "reason": None,
                "outcome": None,
                "next_attempt_at": tx.now,
                "staged_at": tx.now,
            }
        else:
            changes = {"reason": Reason.MANUAL, "outcome": state, "next_attempt_at": None}
        changes |= {"lease_holder": None, "expires_at": None, "started_at": None}
        move(tx, Actor.RESOLVE, run, RunState(state), **changes)


@answers(STATEMENTS.request_stop)
def request_stop(
    tx: Transaction,
    times: Times,
    schedules: Sequence[UUID],
    reasons: Sequence[str | None],
) -> None:
    for _, key, reason in numbered(times, schedules, reasons):
        run = run_of(tx, key)
        if run is not None and run.state is RunState.RUNNING:
            requested_at = None if reason is None else tx.now
            amend(tx, run, stop_requested_at=requested_at, reason=reason)
