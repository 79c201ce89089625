"""The slots of concurrency labels in both ledgers: claims, ends, reservations and recovery."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import asyncpg
import pytest
from tests.contract.ledger_rows import (
    HOLDER,
    LEASE,
    NOW,
    RETRY_WAIT,
    SEQ,
    VERSION,
    Row,
    completion_of,
    row_of,
)
from tests.contract.overlap_claimers import (
    STAGED,
    insert_runs,
    key,
    states_and_reasons,
    ticket,
)

from harebell.contract.ids import RunKey
from harebell.contract.policy import Concurrency, Overlap
from harebell.contract.ticket import Ticket
from harebell.domain.concurrency import Label
from harebell.domain.run_states import Reason, RunState
from harebell.executor.claiming.overlap import OverlapPlan, claim_with_overlap
from harebell.ledger.woken_runs import wake_labels
from harebell.storage.runs import claims, completion, label_slots, overlap

WAITING = ("staged", "waiting_for_label")
RUNNING = ("running", None)
LABEL = Label("acme", "db-7")
END_RESERVATIONS = "UPDATE label_slots SET reserved_until = now() - interval '1 second'"


def labelled(run: RunKey, limit: int, *, seq: int, due_at: datetime) -> Ticket:
    found = ticket(run, Overlap.ALLOW, seq)
    concurrency = Concurrency(label=LABEL.name, limit=limit)
    run_spec = found.run_spec.model_copy(update={"concurrency": concurrency})
    return found.model_copy(update={"run_spec": run_spec, "due_at": due_at})


@dataclass
class LabelExecutor:
    """An executor of runs with one label. Each run has a schedule of its own."""

    ledger: asyncpg.Pool
    limit: int = 2
    tokens: dict[RunKey, int] = field(default_factory=dict)

    async def claim(
        self,
        *runs: RunKey,
        seq: int = SEQ,
        limit: int | None = None,
        due_at: datetime | None = None,
    ) -> OverlapPlan:
        """Claim the runs. `due_at` is the due time of their tickets (default: as scheduled)."""
        tickets = {
            claims.ClaimKey(
                key=run,
                seq=seq,
                version=VERSION,
                override=None,
                lease=LEASE,
                due_at=run.scheduled_for + RETRY_WAIT,
            ): labelled(run, limit or self.limit, seq=seq, due_at=due_at or run.scheduled_for)
            for run in runs
        }
        async with self.ledger.acquire() as connection, connection.transaction():
            claimed, plan = await claim_with_overlap(connection, tickets, HOLDER)
        self.tokens |= {run: claim.token for run, claim in claimed.items()}
        return plan

    async def complete(self, run: RunKey, state: RunState = RunState.SUCCEEDED) -> list[RunKey]:
        """Complete the run and return the woken runs."""
        async with self.ledger.acquire() as connection, connection.transaction():
            await overlap.lock(connection, (), [LABEL])
            completed = completion_of(run, state, token=self.tokens.pop(run))
            assert set(await completion.complete(connection, [completed])) == {run}
            woken = await wake_labels(connection, [LABEL], NOW)
        return [each.key for each in woken]


def keys_of(count: int) -> list[RunKey]:
    """Return keys of different schedules, in the order of their due times."""
    return [key(number, schedule=count - number) for number in range(count)]


@pytest.mark.requirement("ASK-13")
async def test_runs_beyond_the_limit_wait_without_an_attempt(ledger: asyncpg.Pool) -> None:
    runs = keys_of(4)
    await insert_runs(ledger, runs)

    plan = await LabelExecutor(ledger).claim(*reversed(runs))

    assert {each.key for each in plan.decided} == set(runs[2:])
    assert await states_and_reasons(ledger, runs) == [RUNNING, RUNNING, WAITING, WAITING]
    assert [(await row_of(ledger, run))["attempt"] for run in runs] == [1, 1, 0, 0]


@pytest.mark.requirement("ASK-13")
@pytest.mark.parametrize("end", [RunState.SUCCEEDED, RunState.DEAD, RunState.CANCELLED])
async def test_end_of_a_run_wakes_the_run_that_was_due_first(
    ledger: asyncpg.Pool, end: RunState
) -> None:
    runs = keys_of(4)
    await insert_runs(ledger, runs)
    executor = LabelExecutor(ledger)
    await executor.claim(*runs[:2])
    await executor.claim(runs[3])
    await executor.claim(runs[2])

    assert await executor.complete(runs[1], end) == [runs[2]]
    await executor.claim(runs[2], seq=SEQ + 1)

    states = await states_and_reasons(ledger, [runs[0], *runs[2:]])
    assert states == [RUNNING, RUNNING, WAITING]


@pytest.mark.requirement("ASK-13")
async def test_run_between_its_attempts_has_no_slot(ledger: asyncpg.Pool) -> None:
    runs = keys_of(2)
    await insert_runs(ledger, runs)
    executor = LabelExecutor(ledger, limit=1)
    await executor.claim(*runs)

    assert await executor.complete(runs[0], RunState.RETRYING) == [runs[1]]
    await executor.claim(runs[1], seq=SEQ + 1)
    await executor.claim(runs[0], seq=SEQ + 2)

    assert await states_and_reasons(ledger, runs) == [("retrying", "waiting_for_label"), RUNNING]


@pytest.mark.requirement("ASK-13")
async def test_woken_run_keeps_its_slot_until_its_ticket_arrives(ledger: asyncpg.Pool) -> None:
    runs = [*keys_of(2), key(-60, schedule=9)]
    await insert_runs(ledger, runs)
    executor = LabelExecutor(ledger, limit=1)
    await executor.claim(*runs[:2])
    await executor.complete(runs[0])

    await executor.claim(runs[2])  # due earlier than the woken run, and too late for its slot
    await executor.claim(runs[1], seq=SEQ + 1)

    assert await states_and_reasons(ledger, runs[1:]) == [RUNNING, WAITING]


@pytest.mark.requirement("ASK-13")
async def test_woken_run_without_an_executor_blocks_no_other_run(ledger: asyncpg.Pool) -> None:
    """The ticket of the woken run may be in the queue of a pool without executors."""
    first, woken, other = runs = keys_of(3)
    await insert_runs(ledger, runs)
    executor = LabelExecutor(ledger, limit=1)
    await executor.claim(*runs)
    assert await executor.complete(first) == [woken]
    assert await label_slots.find_stalled(ledger) == []
    await ledger.execute(END_RESERVATIONS)

    assert await label_slots.find_stalled(ledger) == [LABEL]
    async with ledger.acquire() as connection, connection.transaction():
        assert await label_slots.try_lock(connection, [LABEL]) == {LABEL}
        tickets = await wake_labels(connection, [LABEL], NOW, with_waiting=True)

    assert [each.key for each in tickets] == [other]


@pytest.mark.requirement("ASK-13")
async def test_woken_run_that_waits_again_keeps_its_place(ledger: asyncpg.Pool) -> None:
    runs = keys_of(4)
    await insert_runs(ledger, runs)
    executor = LabelExecutor(ledger, limit=1)
    await executor.claim(*runs[:3])
    await executor.complete(runs[0])
    await ledger.execute(END_RESERVATIONS)
    async with ledger.acquire() as connection, connection.transaction():
        await wake_labels(connection, [LABEL], NOW)
    await executor.claim(runs[2], seq=SEQ + 1)
    await executor.claim(runs[3])

    # The ticket of a woken run is due at the time of its wake.
    later = runs[3].scheduled_for + timedelta(seconds=1)
    await executor.claim(runs[1], seq=SEQ + 1, due_at=later)
    assert await executor.complete(runs[2]) == [runs[1]]


@pytest.mark.requirement("ASK-13")
async def test_limit_of_the_asking_run_counts_and_the_line_keeps_its_order(
    ledger: asyncpg.Pool,
) -> None:
    first, small, large = runs = keys_of(3)
    await insert_runs(ledger, runs)
    executor = LabelExecutor(ledger)
    await executor.claim(first, limit=3)
    await executor.claim(small, limit=1)
    await executor.claim(large, limit=3)

    assert await states_and_reasons(ledger, runs) == [RUNNING, WAITING, WAITING]
    assert await executor.complete(first) == [small]


@pytest.mark.requirement("ASK-13")
async def test_cancelled_and_expired_runs_leave_the_line(ledger: asyncpg.Pool) -> None:
    first, cancelled, last = runs = keys_of(3)
    await insert_runs(ledger, runs)
    expired = key(0, schedule=20)
    await insert_runs(ledger, [expired], Row(STAGED, 0, Reason.WAITING_FOR_LABEL, is_expired=True))
    executor = LabelExecutor(ledger, limit=1)
    await executor.claim(*runs)
    await ledger.execute(
        "UPDATE runs SET state = 'cancelled', finished_at = now() WHERE scheduled_for = $1",
        cancelled.scheduled_for,
    )

    assert await label_slots.find_stalled(ledger) == [LABEL]
    assert await executor.complete(first) == [last]


@pytest.mark.requirement("ASK-13")
async def test_stale_ticket_neither_waits_nor_takes_a_slot(ledger: asyncpg.Pool) -> None:
    (run,) = keys_of(1)
    await insert_runs(ledger, [run])

    plan = await LabelExecutor(ledger).claim(run, seq=SEQ + 3)

    assert (plan.claimed, plan.waiting_for_label) == ([], [])
    assert await states_and_reasons(ledger, [run]) == [("staged", None)]
    async with ledger.acquire() as connection:
        assert await label_slots.read_slots(connection, [LABEL]) == {}


@pytest.mark.requirement("ASK-13")
async def test_simultaneous_claims_and_ends_never_exceed_the_limit(ledger: asyncpg.Pool) -> None:
    runs = keys_of(40)
    await insert_runs(ledger, runs)
    executors = [LabelExecutor(ledger, limit=3) for _ in range(8)]

    async def claim_each(executor: LabelExecutor, own: Sequence[RunKey]) -> None:
        for run in own:
            await executor.claim(run)

    await asyncio.gather(
        *(claim_each(executor, runs[start::8]) for start, executor in enumerate(executors))
    )
    executed: list[RunKey] = []

    while running := [(each, run) for each in executors for run in each.tokens]:
        assert len(running) <= 3
        woken = await asyncio.gather(*(each.complete(run) for each, run in running))
        executed += [run for _, run in running]
        following = [run for each in woken for run in each]
        await asyncio.gather(
            *(
                executor.claim(run, seq=SEQ + 1)
                for executor, run in zip(executors, following, strict=False)
            )
        )

    assert sorted(executed) == runs
    # Each round executes the next three runs of the line, in any order. The first three runs began
    # before the line existed.
    line = sorted(executed[3:])
    rounds = [sorted(executed[start : start + 3]) for start in range(3, len(executed), 3)]
    assert rounds == [line[start : start + 3] for start in range(0, len(line), 3)]
