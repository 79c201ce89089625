"""Overlap slots: one run of a schedule executes, no run is lost and no transaction deadlocks."""

import asyncio
from collections import Counter

import asyncpg
import pytest
from tests.contract.ledger_rows import (
    HOLDER,
    LEASE,
    NOW,
    RETRY_WAIT,
    SEQ,
    VERSION,
    row_of,
    states_and_seqs,
)
from tests.contract.overlap_claimers import (
    QUEUE,
    REPLACE,
    SKIP,
    Executor,
    insert_runs,
    key,
    slot_roles,
    states_and_reasons,
    ticket,
)

from harebell.contract.policy import Overlap
from harebell.domain.run_states import Reason, RunState
from harebell.executor.claiming.overlap import claim_with_overlap
from harebell.storage.runs import claims


@pytest.mark.requirement("S50")
async def test_run_is_skipped_when_another_run_executes(
    ledger: asyncpg.Pool,
) -> None:
    first, second, third = runs = [key(number) for number in range(3)]
    await insert_runs(ledger, runs)
    executor = Executor(ledger, SKIP)

    await executor.claim(first)
    plan = await executor.claim(second)
    await executor.complete(first)
    await executor.claim(third)

    assert plan.ends == {second: (RunState.SKIPPED, Reason.OVERLAP)}
    assert await states_and_reasons(ledger, runs) == [
        ("succeeded", None),
        ("skipped", "overlap"),
        ("running", None),
    ]
    assert (await row_of(ledger, second))["finished_at"] is not None


@pytest.mark.requirement("S50")
async def test_queued_runs_execute_one_after_the_other_in_order(ledger: asyncpg.Pool) -> None:
    runs = [key(number) for number in range(4)]
    await insert_runs(ledger, runs)
    executor = Executor(ledger, QUEUE)

    await executor.claim(runs[0])
    await executor.claim(runs[3], runs[1])
    await executor.claim(runs[2])
    executed = [runs[0]]
    while woken := await executor.complete(executed[-1]):
        (following,) = woken
        await executor.claim(following, seq=SEQ + 1)
        assert (await row_of(ledger, following))["state"] == "running"
        executed.append(following)

    assert executed == runs
    assert await slot_roles(ledger, runs[0].schedule_id) == {}


@pytest.mark.requirement("S50")
async def test_ticket_that_is_earlier_than_its_row_takes_no_slot(ledger: asyncpg.Pool) -> None:
    """A failed transaction publishes such a ticket."""
    run, early = key(3600), key(0).scheduled_for
    await insert_runs(ledger, [run])
    tickets = {
        claims.ClaimKey(
            key=run, seq=SEQ, version=VERSION, override=None, lease=LEASE, due_at=early
        ): ticket(run, REPLACE)
    }

    async with ledger.acquire() as connection, connection.transaction():
        claimed, plan = await claim_with_overlap(connection, tickets, HOLDER)

    assert (claimed, plan.roles, plan.decided) == ({}, {}, frozenset())


@pytest.mark.requirement("S50")
async def test_old_ticket_of_a_woken_run_is_stale(ledger: asyncpg.Pool) -> None:
    first, second = runs = [key(0), key(1)]
    await insert_runs(ledger, runs)
    executor = Executor(ledger, QUEUE)
    await executor.claim(*runs)
    assert await executor.complete(first) == [second]

    plan = await executor.claim(second)

    assert (plan.claimed, plan.waiting) == ([], [])
    assert await states_and_reasons(ledger, [second]) == [("staged", "waiting_for_overlap")]


@pytest.mark.requirement("S50")
async def test_retry_keeps_the_slot(ledger: asyncpg.Pool) -> None:
    first, _ = runs = [key(0), key(1)]
    await insert_runs(ledger, runs)
    executor = Executor(ledger, QUEUE)
    await executor.claim(*runs)

    assert await executor.complete(first, RunState.RETRYING) == []
    await executor.claim(first, seq=SEQ + 2, due_at=NOW + RETRY_WAIT)

    assert await states_and_reasons(ledger, runs) == [
        ("running", None),
        ("staged", "waiting_for_overlap"),
    ]


@pytest.mark.requirement("S50")
async def test_newest_run_replaces_waiting_runs_and_requests_the_stop_of_the_running_one(
    ledger: asyncpg.Pool,
) -> None:
    first, second, third = runs = [key(number) for number in range(3)]
    await insert_runs(ledger, runs)
    executor = Executor(ledger, REPLACE)
    await executor.claim(first)

    first_plan = await executor.claim(second)
    second_plan = await executor.claim(third)

    assert {run: row.lease_holder for run, row in first_plan.stops.items()} == {first: HOLDER}
    assert second_plan.stops == {}  # the stop is requested already
    assert await states_and_reasons(ledger, runs) == [
        ("running", "replaced"),
        ("cancelled", "replaced"),
        ("staged", "waiting_for_overlap"),
    ]
    assert (await row_of(ledger, first))["stop_requested_at"] is not None
    assert await executor.complete(first, RunState.CANCELLED) == [third]


@pytest.mark.requirement("S50")
async def test_ended_run_with_a_slot_delays_no_other_run(ledger: asyncpg.Pool) -> None:
    ended, waiting = key(0), key(1)
    await insert_runs(ledger, [ended, waiting])
    executor = Executor(ledger, SKIP)
    await executor.claim(ended)
    await ledger.execute("UPDATE runs SET state = 'dead', finished_at = now(), seq = seq + 1")
    await ledger.execute(
        "UPDATE runs SET state = 'staged', seq = $1, finished_at = NULL WHERE scheduled_for = $2",
        SEQ,
        waiting.scheduled_for,
    )

    await executor.claim(waiting)

    assert await states_and_reasons(ledger, [waiting]) == [("running", None)]


@pytest.mark.requirement("S50")
@pytest.mark.parametrize("policy", [SKIP, QUEUE, REPLACE])
async def test_concurrent_executors_run_one_run_of_a_schedule_without_a_deadlock(
    ledger: asyncpg.Pool, policy: Overlap
) -> None:
    """Forty concurrent claims of batches with several schedules, each in another order."""
    runs = [[key(number, schedule) for schedule in range(6)] for number in range(20)]
    await insert_runs(ledger, [run for batch in runs for run in batch])
    executors = [Executor(ledger, policy, f"executor-{number}") for number in range(20)]
    batches = [batch[:: 1 if number % 2 else -1] for number, batch in enumerate(runs)]

    for _ in range(2):  # every batch is delivered twice
        await asyncio.gather(
            *(each.claim(*batch) for each, batch in zip(executors, batches, strict=True))
        )

    assert await max_running(ledger) == 1
    woken = await asyncio.gather(
        *(each.complete(run) for each in executors for run in list(each.tokens))
    )
    expected = {SKIP: 0, QUEUE: 6, REPLACE: 6}[policy]
    assert sum(map(len, woken)) == expected
    results = Counter(await states_and_reasons(ledger, [run for batch in runs for run in batch]))
    assert results.total() == 120
    if policy is QUEUE:
        assert results == {("staged", "waiting_for_overlap"): 114, ("succeeded", None): 6}


async def max_running(ledger: asyncpg.Pool) -> int:
    states = await states_and_seqs(ledger)
    running = [run.schedule_id for run, (state, _) in states.items() if state is RunState.RUNNING]
    return max(Counter(running).values())


@pytest.mark.requirement("S50")
async def test_returned_run_keeps_the_slot(ledger: asyncpg.Pool) -> None:
    first, second = runs = [key(0), key(1)]
    await insert_runs(ledger, runs)
    executor = Executor(ledger, QUEUE)
    await executor.claim(first)
    async with ledger.acquire() as connection:
        returned = await claims.return_unstarted(
            connection, [claims.Claim(first, executor.tokens[first], 1)]
        )

    await executor.claim(second)
    await executor.claim(first, seq=returned[first])

    assert await states_and_reasons(ledger, runs) == [
        ("running", None),
        ("staged", "waiting_for_overlap"),
    ]
