"""The statements of `storage/runs/recovery.py` in memory, and the clock of the database."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta

from tests.fakes.ledger.claims import Schedules, Times
from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.runs import (
    RUNS,
    Run,
    all_runs,
    amend,
    key_columns,
    move,
    numbered,
    run_of,
)
from tests.fakes.ledger.store import Transaction

from harebell.domain.run_states import WORKER, Actor, Reason, RunState
from harebell.storage.engine import DATABASE_TIME
from harebell.storage.runs.recovery import STATEMENTS

_LEASE_COLUMNS = ("token", "attempt", "failed_probes", "lease_holder", "started_at", "reason")


@answers(STATEMENTS.find_lost_tickets)
def find_lost_tickets(
    tx: Transaction,
    retry_lead: float,
    lost_after: float,
    lost_in_any_case_after: float,
    max_interval: float,
    limit: int,
    since: datetime,
) -> list[Record]:
    found: list[tuple[datetime, Record]] = []
    queued_since = tx.now - timedelta(seconds=lost_in_any_case_after)
    for run in all_runs(tx):
        at = run.next_due
        is_waiting = run.reason in (Reason.WAITING_FOR_OVERLAP, Reason.WAITING_FOR_LABEL)
        has_slot = not is_waiting or run.has_expired(tx.now)
        is_lost = run.is_waiting and has_slot and run.due_at >= since
        if is_lost and _is_overdue(
            run, tx.now, retry_lead=retry_lead, lost_after=lost_after, max_interval=max_interval
        ):
            is_over = run.has_expired(tx.now)
            can_be_queued = run.staged_at is not None and at > queued_since and not is_over
            place = {"pool": run.pool, "lane": run.lane, "can_be_queued": can_be_queued}
            found.append((at, key_columns(run) | place))
    return [record for _, record in sorted(found, key=lambda each: each[0])[:limit]]


def _is_overdue(
    run: Run, now: datetime, *, retry_lead: float, lost_after: float, max_interval: float
) -> bool:
    at = run.next_due
    if run.due_at >= now + timedelta(seconds=retry_lead):
        return False
    if run.staged_at is None:
        return at < now + timedelta(seconds=retry_lead)
    interval = min(run.staged_at - at, timedelta(seconds=max_interval))
    is_lost = run.has_expired(now) or now - run.staged_at >= interval
    return at < now - timedelta(seconds=lost_after) and is_lost


@answers(STATEMENTS.expire_overdue)
def expire_overdue(tx: Transaction, times: Times, schedules: Schedules) -> Iterator[Record]:
    for _, key in numbered(times, schedules):
        run = run_of(tx, key)
        if run is None or not (run.is_waiting and run.has_expired(tx.now)):
            continue
        move(
            tx,
            Actor.TICKER,
            run,
            RunState.EXPIRED,
            reason=Reason.EXPIRED,
            outcome=RunState.EXPIRED,
            finished_at=tx.now,
            next_attempt_at=None,
        )
        yield key_columns(run) | {"attempt": run.attempt}


@answers(STATEMENTS.mark_restaged)
def mark_restaged(tx: Transaction, times: Times, schedules: Schedules) -> Iterator[Record]:
    for _, key in numbered(times, schedules):
        run = run_of(tx, key)
        if run is not None and run.is_waiting:
            first = run.first_ticket_at
            republished = amend(
                tx, run, staged_at=tx.now, republished_at=tx.now, first_staged_at=first
            )
            yield key_columns(republished)


@answers(STATEMENTS.find_open_days)
def find_open_days(tx: Transaction, retry_lead: float) -> Iterator[Record]:
    first_due: dict[date, datetime] = {}
    for run in all_runs(tx):
        if run.finished_at is None and run.due_at < tx.now + timedelta(seconds=retry_lead):
            day = run.key.scheduled_for.astimezone(UTC).date()
            first_due[day] = min(run.due_at, first_due.get(day, run.due_at))
    for day, due_at in first_due.items():
        yield {"day": day, "first_due_at": due_at}


@answers(STATEMENTS.find_lease_holders)
def find_lease_holders(
    tx: Transaction, silent_after: float, retry_lead: float, since: datetime
) -> Iterator[Record]:
    runs_by_holder: dict[str, list[Run]] = defaultdict(list)
    for run in _running(tx, retry_lead, since):
        runs_by_holder[run.lease_holder or ""].append(run)
    for holder, runs in runs_by_holder.items():
        yield {
            "lease_holder": holder,
            "has_expired": any(has_expired_lease(run, tx.now) for run in runs),
            "is_silent": any(_is_silent(run, tx.now, silent_after) for run in runs),
        }


@answers(STATEMENTS.lock_expired_leases)
def lock_expired_leases(
    tx: Transaction,
    dead_holders: Sequence[str],
    by_time: bool,
    silent_after: float,
    limit: int,
    retry_lead: float,
    reports_read_for: float,
    since: datetime,
) -> Iterator[Record]:
    count = 0
    for run in _running(tx, retry_lead, since):
        is_dead = run.lease_holder in dead_holders and _is_silent(run, tx.now, silent_after)
        is_lost = (by_time and has_expired_lease(run, tx.now)) or is_dead
        if run.lease_holder == WORKER:
            is_read = (run.lease_seconds or 0) < reports_read_for
            is_lost = is_read and has_expired_lease(run, tx.now)
        if is_lost and count < limit and tx.try_lock(RUNS, run.key):
            count += 1
            columns = {name: getattr(run, name) for name in _LEASE_COLUMNS}
            has_stop_request = run.stop_requested_at is not None
            yield key_columns(run) | columns | {"has_stop_request": has_stop_request}


@answers(DATABASE_TIME)
def database_time(tx: Transaction) -> list[Record]:
    return [{"now": tx.store.now()}]


@answers(STATEMENTS.database_uptime)
def database_uptime(tx: Transaction) -> Iterator[Record]:
    yield {"seconds": (tx.now - tx.store.started_at).total_seconds()}


def _running(tx: Transaction, retry_lead: float, since: datetime) -> list[Run]:
    until = tx.now + timedelta(seconds=retry_lead)
    running = [run for run in all_runs(tx) if run.state is RunState.RUNNING]
    return [run for run in running if since <= run.due_at < until]


def has_expired_lease(run: Run, now: datetime) -> bool:
    return run.lease_until is not None and run.lease_until < now


def _is_silent(run: Run, now: datetime, silent_after: float) -> bool:
    if run.lease_until is None:
        return False
    renewed_at = run.lease_until - timedelta(seconds=run.lease_seconds or 0)
    return renewed_at < now - timedelta(seconds=silent_after)
