"""Taking turns on a real ledger: one at a time, nobody forgotten, nobody waiting crosswise."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid5

import asyncpg
import pytest
from tests.contract.ledger_rows import HOLDER, LEASE, NOW, SEQ, VERSION, Row, ending, put_as, row_of

from harebell.contract.identity import RunKey
from harebell.contract.names import Lane
from harebell.contract.policy import Overlap
from harebell.contract.target import TaskCall, TaskTarget
from harebell.contract.ticket import Ticket, Work
from harebell.executor.turns import Plan, take_turns
from harebell.kernel.db.ledger import claims, endings, turns
from harebell.kernel.ledger import Reason, RunState
from harebell.kernel.settlement import pass_on

pytestmark = pytest.mark.postgres

SPACE: Final = UUID("1c1f6a8e-0b7c-5a0a-8d8e-5a52f3c0b9d1")
STAGED = RunState.STAGED
SKIP, QUEUE, REPLACE = Overlap.SKIP, Overlap.QUEUE, Overlap.REPLACE


def key(number: int, schedule: int = 0) -> RunKey:
    return RunKey(NOW + timedelta(seconds=number), uuid5(SPACE, str(schedule)))


def ticket(run: RunKey, policy: Overlap, seq: int = SEQ) -> Ticket:
    return Ticket(
        schedule_id=run.schedule_id,
        scheduled_for=run.scheduled_for,
        due_at=run.scheduled_for,
        seq=seq,
        version=VERSION,
        pool="default",
        lane=Lane.NORMAL,
        priority=5,
        work=Work(
            tenant="acme",
            target=TaskTarget(task=TaskCall(name="harebell.echo")),
            overlap=policy,
        ),
    )


@dataclass
class Executor:
    """What claims, ends and passes on, as executors do; nothing is published."""

    ledger: asyncpg.Pool
    policy: Overlap
    holder: str = HOLDER
    tokens: dict[RunKey, int] = field(default_factory=dict)

    async def claim(self, *runs: RunKey, seq: int = SEQ) -> Plan:
        wanted = {
            claims.Wanted(run, seq, VERSION, None, LEASE): ticket(run, self.policy, seq)
            for run in runs
        }
        async with self.ledger.acquire() as connection, connection.transaction():
            mine, plan = await take_turns(connection, wanted, self.holder)
        self.tokens |= {run: claim.token for run, claim in mine.items()}
        return plan

    async def end(self, run: RunKey, state: RunState = RunState.SUCCEEDED) -> list[RunKey]:
        """Who is woken."""
        policies = {run.schedule_id: self.policy}
        async with self.ledger.acquire() as connection, connection.transaction():
            await turns.lock(connection, policies)
            moved = await endings.end(connection, [ending(run, state, token=self.tokens.pop(run))])
            assert set(moved) == {run}
            woken = await pass_on(connection, policies, NOW)
        return [each.key for each in woken]


async def stage(ledger: asyncpg.Pool, runs: Iterable[RunKey], row: Row | None = None) -> None:
    runs = list(runs)
    await put_as(ledger, dict.fromkeys(runs, row or Row(STAGED)))
    await write_versions(ledger, {run.schedule_id for run in runs})


async def write_versions(ledger: asyncpg.Pool, schedules: Iterable[UUID]) -> None:
    """From which the tickets of woken runs are made."""
    work = ticket(key(0), QUEUE).work.model_dump_json(by_alias=True, exclude_none=True)
    await ledger.executemany(
        "INSERT INTO schedule_versions (schedule_id, version, definition, work, fingerprint, "
        "accepted_at, effective_at, fate) VALUES ($1, $2, '{}', $3, '', $4, $4, 'commenced') "
        "ON CONFLICT DO NOTHING",
        [(schedule, VERSION, work, NOW) for schedule in schedules],
    )


async def said(ledger: asyncpg.Pool, runs: Iterable[RunKey]) -> list[tuple[str, str | None]]:
    rows = [await row_of(ledger, run) for run in runs]
    return [(row["state"], row["reason"]) for row in rows]


async def turns_of(ledger: asyncpg.Pool, schedule: UUID) -> Mapping[Any, str]:
    rows = await ledger.fetch("SELECT * FROM turns WHERE schedule_id = $1", schedule)
    return {row["scheduled_for"]: row["role"] for row in rows}


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


async def test_a_woken_runs_old_ticket_is_stale(ledger: asyncpg.Pool) -> None:
    first, second = runs = [key(0), key(1)]
    await stage(ledger, runs)
    executor = Executor(ledger, QUEUE)
    await executor.claim(*runs)
    assert await executor.end(first) == [second]

    plan = await executor.claim(second)

    assert (plan.claimed, plan.waiting) == ([], [])
    assert await said(ledger, [second]) == [("staged", "waiting")]


async def test_a_retry_keeps_the_turn(ledger: asyncpg.Pool) -> None:
    first, _ = runs = [key(0), key(1)]
    await stage(ledger, runs)
    executor = Executor(ledger, QUEUE)
    await executor.claim(*runs)

    assert await executor.end(first, RunState.RETRYING) == []
    await executor.claim(first, seq=SEQ + 2)

    assert await said(ledger, runs) == [("running", None), ("staged", "waiting")]


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


async def test_a_schedule_whose_waiting_run_nobody_woke_is_found(ledger: asyncpg.Pool) -> None:
    first, _ = runs = [key(0), key(1)]
    await stage(ledger, runs)
    executor = Executor(ledger, QUEUE)
    await executor.claim(*runs)
    assert await turns.stuck(ledger) == []

    await ledger.execute(
        "UPDATE runs SET state = 'cancelled', finished_at = now() WHERE scheduled_for = $1",
        first.scheduled_for,
    )

    assert await turns.stuck(ledger) == [first.schedule_id]


async def test_a_lock_that_another_holds_is_passed_over_not_waited_for(
    ledger: asyncpg.Pool,
) -> None:
    taken, free = key(0, schedule=1).schedule_id, key(0, schedule=2).schedule_id

    async with ledger.acquire() as one, one.transaction(), ledger.acquire() as other:
        await turns.lock(one, [taken])
        async with other.transaction():
            assert await turns.try_lock(other, [taken, free]) == {free}


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
    rows = await ledger.fetch("SELECT state, reason, count(*) FROM runs GROUP BY 1, 2 ORDER BY 1")
    assert sum(row["count"] for row in rows) == 120
    if policy is QUEUE:
        assert [tuple(row) for row in rows] == [
            ("staged", "waiting", 114),
            ("succeeded", None, 6),
        ]


async def most_running(ledger: asyncpg.Pool) -> int:
    most: int = await ledger.fetchval(
        "SELECT max(count) FROM (SELECT count(*) FROM runs WHERE state = 'running' "
        "GROUP BY schedule_id) AS running"
    )
    return most
