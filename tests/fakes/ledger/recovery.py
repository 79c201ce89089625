"""What a sweep asks of the ledger in memory."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from tests.fakes.ledger.claims import Times, Schedules
from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.runs import Run, all_runs, amend, move, numbered, run_of
from tests.fakes.ledger.store import Transaction

from harebell.domain.run_states import Actor, Reason, RunState
from harebell.storage.runs.recovery import _EXPIRE, _HOLDERS, _LAPSED, _LOST, _STAGE_AGAIN

UP_FOR = "SELECT extract(epoch FROM now() - pg_postmaster_start_time())::float8"


def key_of(run: Run) -> Record:
    return {"scheduled_for": run.scheduled_for, "schedule_id": run.schedule_id}


@answers(_LOST)
def lost(
    tx: Transaction, ahead: float, after: float, anyway: float, longest: float, limit: int
) -> list[Record]:
    found: list[tuple[datetime, Record]] = []
    for run in all_runs(tx):
        at = run.next_attempt_at or run.due_at
        is_waiting = run.reason == Reason.WAITING_FOR_OVERLAP and not run.has_expired(tx.now)
        if run.is_waiting and not is_waiting and _is_lost(run, at, tx.now, ahead, after, longest):
            may_wait = run.staged_at is not None and at > tx.now - timedelta(seconds=anyway)
            told = {"pool": run.pool, "lane": run.lane, "may_wait": may_wait}
            found.append((at, key_of(run) | told))
    return [record for _, record in sorted(found, key=lambda each: each[0])[:limit]]


def _is_lost(
    run: Run, at: datetime, now: datetime, ahead: float, after: float, longest: float
) -> bool:
    if run.due_at >= now + timedelta(seconds=ahead):
        return False
    if run.staged_at is None:
        return at < now + timedelta(seconds=ahead)
    doubled = min(run.staged_at - at, timedelta(seconds=longest))
    return at < now - timedelta(seconds=after) and now - run.staged_at >= doubled


@answers(_EXPIRE)
def expire(tx: Transaction, moments: Times, schedules: Schedules) -> Iterator[Record]:
    for _, key in numbered(moments, schedules):
        run = run_of(tx, key)
        if run is None or not (run.is_waiting and run.has_expired(tx.now)):
            continue
        move(
            tx, Actor.TICKER, run, RunState.EXPIRED,
            reason=Reason.EXPIRED, outcome=RunState.EXPIRED, finished_at=tx.now,
            next_attempt_at=None,
        )  # fmt: skip
        yield key_of(run) | {"attempt": run.attempt}


@answers(_STAGE_AGAIN)
def stage_again(tx: Transaction, moments: Times, schedules: Schedules) -> Iterator[Record]:
    for _, key in numbered(moments, schedules):
        run = run_of(tx, key)
        if run is not None and run.is_waiting:
            yield key_of(amend(tx, run, staged_at=tx.now))


@answers(_HOLDERS)
def holders(tx: Transaction, silent: float, ahead: float) -> Iterator[Record]:
    held: dict[str, list[Run]] = defaultdict(list)
    for run in _running(tx, ahead):
        held[run.lease_holder or ""].append(run)
    for holder, runs in held.items():
        yield {
            "lease_holder": holder,
            "has_lapsed": any(_has_lapsed(run, tx.now) for run in runs),
            "is_silent": any(_is_silent(run, tx.now, silent) for run in runs),
        }


@answers(_LAPSED)
def lapsed(
    tx: Transaction,
    gone: Sequence[str],
    by_time: bool,
    silent: float,
    limit: int,
    ahead: float,  # noqa: FBT001  # positional as in the statement
) -> Iterator[Record]:
    told = 0
    for run in _running(tx, ahead):
        by_absence = run.lease_holder in gone and _is_silent(run, tx.now, silent)
        is_over = (by_time and _has_lapsed(run, tx.now)) or by_absence
        if is_over and told < limit and tx.try_lock("runs", run.key):
            told += 1
            names = ("seq", "attempt", "lease_holder", "started_at", "reason")
            said = {name: getattr(run, name) for name in names}
            yield key_of(run) | said | {"stop": run.stop_requested_at is not None}


@answers("SELECT clock_timestamp()")
def clock(tx: Transaction) -> list[Record]:
    return [{"now": tx.store.now()}]


@answers(UP_FOR)
def up_for(tx: Transaction) -> Iterator[Record]:
    yield {"seconds": (tx.now - tx.store.started_at).total_seconds()}


def _running(tx: Transaction, ahead: float) -> list[Run]:
    until = tx.now + timedelta(seconds=ahead)
    return [run for run in all_runs(tx) if run.state is RunState.RUNNING and run.due_at < until]


def _has_lapsed(run: Run, now: datetime) -> bool:
    return run.lease_until is not None and run.lease_until < now


def _is_silent(run: Run, now: datetime, silent: float) -> bool:
    if run.lease_until is None:
        return False
    renewed_at = run.lease_until - timedelta(seconds=run.lease_seconds or 0)
    return renewed_at < now - timedelta(seconds=silent)
