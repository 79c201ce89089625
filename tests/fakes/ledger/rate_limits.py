"""Limits in memory: accounts, and runs that are put off."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from tests.fakes.ledger.claims import Times, Schedules, Tokens
from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.runs import RUNS, move, numbered, run_of
from tests.fakes.ledger.store import Transaction

from harebell.domain.run_states import Actor, Reason, RunState
from harebell.storage.runs.rate_limits import _DUE, _FORGET, _KEEP, _OPEN, _PUT_OFF

RATE_LIMITS = "rate_limits"
_NEW = {"reservations": (), "starts": (), "expires_at": None}


@answers(_DUE)
def due(tx: Transaction, moments: Times, schedules: Schedules, seqs: Tokens) -> Iterator[Record]:
    for k, key, seq in numbered(moments, schedules, seqs):
        run = run_of(tx, key)
        if run is not None and run.is_waiting and run.seq == seq:
            tx.lock(RUNS, key)
            yield {"k": k}


@answers(_OPEN)
def open_accounts(tx: Transaction, accounts: Sequence[str]) -> Iterator[Record]:
    for account in sorted(accounts):
        row = tx.get(RATE_LIMITS, account) or _NEW | {"key": account}
        tx.put(RATE_LIMITS, account, row)
        yield row | {"now": tx.store.now()}


@answers(_KEEP)
def keep(
    tx: Transaction, account: str, places: Times, starts: Times, over_at: datetime | None
) -> None:
    kept = {"reservations": tuple(places), "starts": tuple(starts), "expires_at": over_at}
    tx.put(RATE_LIMITS, account, kept | {"key": account})


@answers(_FORGET)
def forget(tx: Transaction) -> None:
    for row in list(tx.rows(RATE_LIMITS)):
        if row["expires_at"] is not None and row["expires_at"] < tx.now:
            tx.put(RATE_LIMITS, row["key"], None)


@answers(_PUT_OFF)
def put_off(
    tx: Transaction,
    moments: Times,
    schedules: Schedules,
    seqs: Tokens,
    ats: Times,
    rest: Sequence[bool],
) -> Iterator[Record]:
    for k, key, seq, at, rests in numbered(moments, schedules, seqs, ats, rest):
        run = run_of(tx, key)
        if run is None or run.seq != seq or run.stop_requested_at is not None:
            continue
        begun = 1 if run.state is RunState.RUNNING else 0
        again = RunState.RETRYING if run.attempt > begun else RunState.STAGED
        moved = move(
            tx, Actor.RATE_LIMIT, run, again,
            attempt=run.attempt - begun, lease_until=None, lease_holder=None, started_at=None,
            next_attempt_at=at, staged_at=None if rests else tx.now, reason=Reason.RATE_LIMITED,
        )  # fmt: skip
        if moved is not None:
            yield {"k": k, "seq": moved.seq}
