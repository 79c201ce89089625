"""The completer on the in-memory ledger: the jitter of retries, and rejected records."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

import asyncpg
from tests.fakes.ledger.ledger import open_client, open_ledger
from tests.fakes.ledger.pool import Effect, Pool
from tests.fakes.ledger.runs import RUNS
from tests.fakes.publisher import FakePublisher
from tests.fakes.tickets import ticket

from harebell.contract.ticket import Ticket
from harebell.domain.retry import Failure
from harebell.domain.run_states import NewRun, Placement
from harebell.executor.completer import Completer
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.claimed_runs import ClaimedRuns
from harebell.executor.running.start_guard import StartGuard
from harebell.executor.targets.attempt import Success
from harebell.runtime.clock import Clock, monotonic
from harebell.storage.engine import database_time
from harebell.storage.runs import claims, staging

LEASE = 15.0
RUNS_TO_RETRY = 60
TIMEOUT = 30.0  # seconds


async def claim_all(ledger: Pool, tickets: Sequence[Ticket]) -> list[ClaimedRun]:
    connection = cast("Any", ledger)
    place = Placement("default", 1, "default", "normal", 5)
    await staging.stage(connection, [NewRun(t.run_key, place, t.due_at, None) for t in tickets])
    keys = [
        claims.ClaimKey(
            key=each.run_key, seq=1, version=1, override=None, lease=LEASE, due_at=each.due_at
        )
        for each in tickets
    ]
    claimed = await claims.claim(connection, keys, "executor-1")
    return [
        ClaimedRun(
            ticket=each,
            token=claimed[each.run_key].token,
            attempt=claimed[each.run_key].attempt,
            lease=LEASE,
            renewed_at=monotonic(),
        )
        for each in tickets
    ]


async def completer_of(pool: Any, runs: Sequence[ClaimedRun]) -> Completer:
    clock = Clock(lambda: database_time(open_ledger()))
    await clock.refresh()
    claimed_runs = ClaimedRuns()
    claimed_runs.add(runs)
    return Completer(
        pool=pool,
        publisher=FakePublisher(),
        clock=clock,
        claimed_runs=claimed_runs,
        start_guard=StartGuard(),
    )


async def record_all(completer: Completer) -> None:
    """Run the completer until its queues are empty. No claimed run is left then."""
    task = asyncio.create_task(completer.run())
    try:
        async with asyncio.timeout(TIMEOUT):
            await completer.flush()
        assert len(completer.claimed_runs) == 0
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_retries_of_simultaneous_failures_have_different_waits() -> None:
    ledger = open_ledger()
    runs = await claim_all(ledger, [ticket(number) for number in range(RUNS_TO_RETRY)])
    completer = await completer_of(ledger, runs)

    for run in runs:
        completer.complete(run, Failure("http_503", "HTTP 503"))
    await record_all(completer)

    retries: list[datetime] = [run.next_attempt_at for run in ledger.store.tables[RUNS].values()]
    finished = completer.clock.now()
    waits = {round((at - finished).total_seconds(), 3) for at in retries}
    assert len(waits) > RUNS_TO_RETRY / 3


async def test_run_whose_outcome_the_database_rejects_is_given_up() -> None:
    """The lease of the run then expires, and the rescuer applies the retry policy."""
    ledger = open_ledger()
    runs = await claim_all(ledger, [ticket(number) for number in range(3)])

    async def reject(statement: str, effect: Effect) -> Any:
        if "INSERT INTO attempts" in statement:
            raise asyncpg.DataError("The value is out of range.")
        return await effect()

    completer = await completer_of(open_client(ledger.store, reject, completer_of), runs)

    for run in runs:
        completer.complete(run, Success(200))
    await record_all(completer)

    assert {run.seq for run in ledger.store.tables[RUNS].values()} == {2}
