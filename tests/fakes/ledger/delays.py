"""The statements of `storage/runs/delays.py` in memory."""

from collections.abc import Iterator, Sequence

from tests.fakes.ledger.claims import Schedules, Times, Tokens
from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.runs import move, numbered, run_of
from tests.fakes.ledger.store import Transaction

from harebell.domain.run_states import Actor, RunState
from harebell.storage.runs.delays import STATEMENTS


@answers(STATEMENTS.delay_runs)
def delay_runs(
    tx: Transaction,
    times: Times,
    schedules: Schedules,
    seqs: Tokens,
    next_attempts: Times,
    cold: Sequence[bool],
    reason: str,
) -> Iterator[Record]:
    columns = (seqs, next_attempts, cold)
    for k, key, seq, next_attempt_at, is_cold in numbered(times, schedules, *columns):
        run = run_of(tx, key)
        if run is None or run.stop_requested_at is not None:
            continue
        if seq != (run.token if run.state is RunState.RUNNING else run.seq):
            continue
        unused_attempts = 1 if run.state is RunState.RUNNING else 0
        state = RunState.RETRYING if run.attempt > unused_attempts else RunState.STAGED
        moved = move(
            tx,
            Actor.DELAY,
            run,
            state,
            attempt=run.attempt - unused_attempts,
            lease_until=None,
            lease_holder=None,
            started_at=None,
            next_attempt_at=next_attempt_at,
            staged_at=None if is_cold else tx.now,
            reason=reason,
        )
        if moved is not None:
            yield {"k": k, "seq": moved.seq}
