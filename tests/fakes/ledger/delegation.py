"""The statements of `storage/runs/delegation.py` in memory."""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from tests.fakes.ledger.claims import ATTEMPTS, Schedules, Times, Tokens, fenced_run
from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.runs import amend, numbered, run_of
from tests.fakes.ledger.store import Transaction

from harebell.domain.run_states import WORKER
from harebell.storage.runs.delegation import STATEMENTS

_COLUMNS = ("state", "attempt", "failed_probes", "lease_holder", "started_at", "token")


@answers(STATEMENTS.delegate)
def delegate(
    tx: Transaction,
    times: Times,
    schedules: Schedules,
    tokens: Tokens,
    started: Times,
    heartbeats: Sequence[float],
    longest: Sequence[float],
) -> Iterator[Record]:
    runs = numbered(times, schedules, tokens, started, heartbeats, longest)
    for k, key, token, started_at, heartbeat, max_duration in runs:
        if (run := fenced_run(tx, key, token)) is not None:
            amend(
                tx,
                run,
                lease_holder=WORKER,
                lease_seconds=heartbeat,
                started_at=started_at,
                lease_until=tx.now + timedelta(seconds=heartbeat),
                delegated_until=tx.now + timedelta(seconds=max_duration),
            )
            yield {"k": k}


@answers(STATEMENTS.renew)
def renew(
    tx: Transaction,
    times: Times,
    schedules: Schedules,
    tokens: Tokens,
    tenants: Sequence[str],
    reports: Sequence[str | None],
) -> Iterator[Record]:
    reported = numbered(times, schedules, tokens, tenants, reports)
    for k, key, token, tenant, report in reported:
        run = fenced_run(tx, key, token)
        if run is None or run.lease_holder != WORKER or run.tenant != tenant:
            continue
        until = tx.now + timedelta(seconds=run.lease_seconds or 0)
        progress = run.with_progress(report, tx.now)
        lease_until = min(until, run.delegated_until or until)
        renewed = amend(tx, run, lease_until=lease_until, **progress)
        yield {"k": k, "lease_until": renewed.lease_until, "stop_reason": renewed.stop_reason}


@answers(STATEMENTS.find)
def find(
    tx: Transaction, times: Times, schedules: Schedules, tenants: Sequence[str]
) -> Iterator[Record]:
    for k, key, tenant in numbered(times, schedules, tenants):
        run = run_of(tx, key)
        if run is None or run.tenant != tenant:
            continue
        last = tx.get(ATTEMPTS, (key, run.replay_number, run.attempt)) or {}
        columns = {name: getattr(run, name) for name in _COLUMNS}
        yield columns | {
            "k": k,
            "stop_reason": run.stop_reason,
            "last_outcome": last.get("outcome"),
            "last_code": last.get("error_code"),
        }
