"""Turns in memory: which runs of a schedule stand, and who waits for whom."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from uuid import UUID

from tests.fakes.ledger.claims import Times, Schedules
from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.recovery import key_of
from tests.fakes.ledger.runs import RUNS, Run, all_runs, amend, move, numbered, run_of
from tests.fakes.ledger.store import Transaction

from harebell.contract.ids import RunKey
from harebell.domain.run_states import OPEN, Actor, Reason, RunState
from harebell.storage.runs.overlap import (
    _FORGET,
    _GIVE_UP,
    _HOLD_BACK,
    _LOCK,
    _LOCKED,
    _STANDING,
    _STUCK,
    _TAKE,
    _TRY_LOCK,
    _WAKE,
)

OVERLAP_SLOTS = "overlap_slots"
_ADVISORY = "advisory locks"
_STANDS = OPEN | {RunState.UNRESOLVED}


@answers(_LOCK)
def lock(tx: Transaction, keys: Sequence[int]) -> None:
    for key in keys:
        tx.lock(_ADVISORY, key)


@answers(_TRY_LOCK)
def try_lock(tx: Transaction, keys: Sequence[int]) -> Iterator[Record]:
    return ({"key": key} for key in keys if tx.try_lock(_ADVISORY, key))


@answers(_STANDING)
def standing(
    tx: Transaction, schedules: Sequence[UUID], moments: Times, named: Schedules
) -> Iterator[Record]:
    taken = {turn["key"] for turn in tx.rows(OVERLAP_SLOTS) if turn["key"].schedule_id in schedules}
    for key in sorted(taken | set(map(RunKey, moments, named))):
        run, turn = run_of(tx, key), tx.get(OVERLAP_SLOTS, key)
        if run is None or not (run.state in _STANDS and _may_go_on(tx, run)):
            continue
        names = ("state", "reason", "seq", "version", "lease_holder", "override")
        said = {name: getattr(run, name) for name in names}
        role = None if turn is None else turn["role"]
        not_before = run.next_due if run.next_due > tx.now else None
        yield key_of(run) | said | {"role": role, "not_before": not_before}


@answers(_LOCKED)
def standing_locked(
    tx: Transaction, schedules: Sequence[UUID], moments: Times, named: Schedules
) -> list[Record]:
    found = list(standing(tx, schedules, moments, named) or ())
    for record in found:
        tx.lock(RUNS, RunKey(record["scheduled_for"], record["schedule_id"]))
    return found


def _may_go_on(tx: Transaction, run: Run) -> bool:
    return not (run.is_waiting and run.has_expired(tx.now))


@answers(_TAKE)
def take(tx: Transaction, moments: Times, schedules: Schedules, roles: Sequence[str]) -> None:
    for _, key, role in numbered(moments, schedules, roles):
        tx.put(OVERLAP_SLOTS, key, {"key": key, "role": role})


@answers(_HOLD_BACK)
def hold_back(tx: Transaction, moments: Times, schedules: Schedules) -> None:
    for _, key in numbered(moments, schedules):
        run = run_of(tx, key)
        if run is not None and run.is_waiting:
            amend(tx, run, reason=Reason.WAITING_FOR_OVERLAP)


@answers(_GIVE_UP)
def give_up(
    tx: Transaction,
    moments: Times,
    schedules: Schedules,
    states: Sequence[str],
    reasons: Sequence[str],
) -> None:
    for _, key, state, reason in numbered(moments, schedules, states, reasons):
        run = run_of(tx, key)
        if run is not None and run.is_waiting:
            ended = {"finished_at": tx.now, "next_attempt_at": None}
            move(tx, Actor.OVERLAP, run, RunState(state), reason=reason, outcome=state, **ended)


@answers(_WAKE)
def wake(
    tx: Transaction, moments: Times, schedules: Schedules, seconds: float
) -> Iterator[Record]:
    before = tx.now - timedelta(seconds=seconds)
    for _, key in numbered(moments, schedules):
        run = run_of(tx, key)
        if run is None or run.reason != Reason.WAITING_FOR_OVERLAP or not tx.try_lock(RUNS, key):
            continue
        is_ripe = run.staged_at is None or run.staged_at <= before
        if is_ripe and move(tx, Actor.OVERLAP, run, run.state, staged_at=tx.now) is not None:
            yield key_of(run)


@answers(_FORGET)
def forget(tx: Transaction, schedules: Sequence[UUID]) -> None:
    for turn in list(tx.rows(OVERLAP_SLOTS)):
        key = turn["key"]
        run = run_of(tx, key)
        if key.schedule_id in schedules and (run is None or run.state not in _STANDS):
            tx.put(OVERLAP_SLOTS, key, None)


@answers(_STUCK)
def stuck(tx: Transaction, limit: int, after: float) -> list[Record]:
    schedules = dict.fromkeys(turn["key"].schedule_id for turn in tx.rows(OVERLAP_SLOTS))
    found = [schedule for schedule in schedules if _is_stuck(tx, schedule, after)]
    return [{"schedule_id": schedule} for schedule in found[:limit]]


def _is_stuck(tx: Transaction, schedule: UUID, after: float) -> bool:
    taken = {turn["key"] for turn in tx.rows(OVERLAP_SLOTS) if turn["key"].schedule_id == schedule}
    runs = [run for run in all_runs(tx) if run.key in taken]
    if len(runs) < len(taken) or any(run.state not in _STANDS for run in runs):
        return True
    ripe = tx.now - timedelta(seconds=after)
    waits = any(
        run.reason == Reason.WAITING_FOR_OVERLAP and (run.staged_at is None or run.staged_at < ripe)
        for run in runs
    )
    is_busy = any(run.state in (RunState.RUNNING, RunState.UNRESOLVED) for run in runs)
    return waits and not is_busy
