"""Taking turns on a real ledger: one at a time, nobody forgotten or waiting crosswise."""

import asyncio
from collections import Counter

import asyncpg
import pytest
from tests.contract.ledger_rows import HOLDER, LEASE, SEQ, VERSION, row_of, seqs
from tests.contract.overlap_claimers import (
    QUEUE,
    REPLACE,
    SKIP,
    Executor,
    key,
    said,
    stage,
    ticket,
    turns_of,
)

from harebell.contract.policy import Overlap
from harebell.domain.run_states import Reason, RunState
from harebell.executor.claiming.overlap import claim_with_overlap
from harebell.storage.runs import claims


@pytest.mark.requirement("S50")
async def test_of_runs_that_skip_the_one_that_finds_another_running_is_on_record(
    ledger: asyncpg.Pool,
) -> None:
    first, second, third = runs = [key(number) for number in range(3)]
    await stage(ledger, runs)
    executor = Executor(ledger, SKIP)

    await executor.claim(first)
    plan = await executor.claim(second)
    await executor.end(first)
    await executor.claim(third)

    assert plan.ends == {second: (RunState.SKIPPED, Reason.OVERLAP)}
    assert await said(ledger, runs) == [
        ("succeeded", None),
        ("skipped", "overlap"),
        ("running", None),
    ]
    assert (await row_of(ledger, second))["finished_at"] is not None


@pytest.mark.requirement("S50")
async def test_queued_runs_go_one_after_the_other_in_order(ledger: asyncpg.Pool) -> None:
    runs = [key(number) for number in range(4)]
    await stage(ledger, runs)
    executor = Executor(ledger, QUEUE)

    await executor.claim(runs[0])
    await executor.claim(runs[3], runs[1])
    await executor.claim(runs[2])
    went = [runs[0]]
    while woken := await executor.end(went[-1]):
        (following,) = woken
        await executor.claim(following, seq=SEQ + 1)
        assert (await row_of(ledger, following))["state"] == "running"
        went.append(following)

    assert went == runs
    assert await turns_of(ledger, runs[0].schedule_id) == {}


@pytest.mark.requirement("S50")
async def test_a_ticket_that_is_earlier_than_its_row_takes_no_turn(ledger: asyncpg.Pool) -> None:
    """Of a transaction that failed: `claims` tells more."""
    run, early = key(3600), key(0).scheduled_for
    await stage(ledger, [run])
    wanted = {
        claims.ClaimKey(
            key=run, seq=SEQ, version=VERSION, override=None, lease=LEASE, due_at=early
        ): ticket(run, REPLACE)
    }

    async with ledger.acquire() as connection, connection.transaction():
        mine, plan = await claim_with_overlap(connection, wanted, HOLDER)

    assert (mine, plan.roles, plan.decided) == ({}, {}, frozenset())


@pytest.mark.requirement("S50")
async def test_a_woken_runs_old_ticket_is_stale(ledger: asyncpg.Pool) -> None:
    first, second = runs = [key(0), key(1)]
    await stage(ledger, runs)
    executor = Executor(ledger, QUEUE)
    await executor.claim(*runs)
    assert await executor.end(first) == [second]

    plan = await executor.claim(second)

    assert (plan.claimed, plan.waiting) == ([], [])
    assert await said(ledger, [second]) == [("staged", "waiting")]


@pytest.mark.requirement("S50")
async def test_a_retry_keeps_the_turn(ledger: asyncpg.Pool) -> None:
    first, _ = runs = [key(0), key(1)]
    await stage(ledger, runs)
    executor = Executor(ledger, QUEUE)
    await executor.claim(*runs)

    assert await executor.end(first, RunState.RETRYING) == []
    await executor.claim(first, seq=SEQ + 2)

    assert await said(ledger, runs) == [("running", None), ("staged", "waiting")]


@pytest.mark.requirement("S50")
async def test_the_newest_replaces_those_that_wait_and_asks_the_running_one_to_stop(
    ledger: asyncpg.Pool,
) -> None:
    first, second, third = runs = [key(number) for number in range(3)]
    await stage(ledger, runs)
    executor = Executor(ledger, REPLACE)
    await executor.claim(first)

    asked = await executor.claim(second)
    again = await executor.claim(third)

    assert {run: standing.lease_holder for run, standing in asked.stops.items()} == {first: HOLDER}
    assert again.stops == {}, "it has been asked already"
    assert await said(ledger, runs) == [
        ("running", "replaced"),
        ("cancelled", "replaced"),
        ("staged", "waiting"),
    ]
    assert (await row_of(ledger, first))["stop_requested_at"] is not None
    assert await executor.end(first, RunState.CANCELLED) == [third]


@pytest.mark.requirement("S50")
async def test_what_has_ended_unseen_holds_up_nobody(ledger: asyncpg.Pool) -> None:
    gone, waits = key(0), key(1)
    await stage(ledger, [gone, waits])
    executor = Executor(ledger, SKIP)
    await executor.claim(gone)
    await ledger.execute("UPDATE runs SET state = 'dead', finished_at = now(), seq = seq + 1")
    await ledger.execute(
        "UPDATE runs SET state = 'staged', seq = $1, finished_at = NULL WHERE scheduled_for = $2",
        SEQ,
        waits.scheduled_for,
    )

    await executor.claim(waits)

    assert await said(ledger, [waits]) == [("running", None)]


@pytest.mark.requirement("S50")
@pytest.mark.parametrize("policy", [SKIP, QUEUE, REPLACE])
async def test_many_executors_at_once_never_run_two_of_a_schedule_and_never_deadlock(
    ledger: asyncpg.Pool, policy: Overlap
) -> None:
    """Bundles of several schedules, in any order: forty claims at once, then what ends wakes."""
    runs = [[key(number, schedule) for schedule in range(6)] for number in range(20)]
    await stage(ledger, [run for bundle in runs for run in bundle])
    executors = [Executor(ledger, policy, f"executor-{number}") for number in range(20)]
    bundles = [bundle[:: 1 if number % 2 else -1] for number, bundle in enumerate(runs)]

    for _ in range(2):  # every bundle comes twice
        await asyncio.gather(
            *(each.claim(*bundle) for each, bundle in zip(executors, bundles, strict=True))
        )

    assert await most_running(ledger) == 1
    woken = await asyncio.gather(
        *(each.end(run) for each in executors for run in list(each.tokens))
    )
    expected = {SKIP: 0, QUEUE: 6, REPLACE: 6}[policy]
    assert sum(map(len, woken)) == expected
    became = Counter(await said(ledger, [run for bundle in runs for run in bundle]))
    assert became.total() == 120
    if policy is QUEUE:
        assert became == {("staged", "waiting"): 114, ("succeeded", None): 6}


async def most_running(ledger: asyncpg.Pool) -> int:
    states = await seqs(ledger)
    running = [run.schedule_id for run, (state, _) in states.items() if state is RunState.RUNNING]
    return max(Counter(running).values())


@pytest.mark.requirement("S50")
async def test_what_its_executor_gave_back_keeps_the_turn(ledger: asyncpg.Pool) -> None:
    first, second = runs = [key(0), key(1)]
    await stage(ledger, runs)
    executor = Executor(ledger, QUEUE)
    await executor.claim(first)
    async with ledger.acquire() as connection:
        released = await claims.return_unstarted(
            connection, [claims.Claim(first, executor.tokens[first], 1)]
        )

    await executor.claim(second)
    await executor.claim(first, seq=released[first])

    assert await said(ledger, runs) == [("running", None), ("staged", "waiting")]
