"""The statements of `storage/runs/rate_limits.py` in memory."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from tests.fakes.ledger.claims import Schedules, Times, Tokens
from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.runs import RUNS, numbered, run_of
from tests.fakes.ledger.store import Transaction

from harebell.storage.runs.rate_limits import STATEMENTS

RATE_LIMITS = "rate_limits"
_NEW = {"reservations": (), "starts": (), "expires_at": None}


@answers(STATEMENTS.lock_claimable)
def lock_claimable(
    tx: Transaction, times: Times, schedules: Schedules, seqs: Tokens
) -> Iterator[Record]:
    for k, key, seq in numbered(times, schedules, seqs):
        run = run_of(tx, key)
        if run is not None and run.is_waiting and run.seq == seq:
            tx.lock(RUNS, key)
            yield {"k": k}


@answers(STATEMENTS.lock_rate_limits)
def lock_rate_limits(tx: Transaction, keys: Sequence[str]) -> Iterator[Record]:
    for key in sorted(keys):
        row = tx.get(RATE_LIMITS, key) or _NEW | {"key": key}
        tx.put(RATE_LIMITS, key, row)
        yield row | {"now": tx.store.now()}


@answers(STATEMENTS.save_rate_limits)
def save_rate_limits(
    tx: Transaction, key: str, reservations: Times, starts: Times, expires_at: datetime | None
) -> None:
    state = {"reservations": tuple(reservations), "starts": tuple(starts)}
    tx.put(RATE_LIMITS, key, state | {"key": key, "expires_at": expires_at})


@answers(STATEMENTS.delete_expired)
def delete_expired(tx: Transaction) -> None:
    for row in list(tx.rows(RATE_LIMITS)):
        if row["expires_at"] is not None and row["expires_at"] < tx.now:
            tx.put(RATE_LIMITS, row["key"], None)
