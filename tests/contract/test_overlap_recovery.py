"""Turns that nobody passed on, and locks that a sweep must not wait for."""

from collections.abc import Iterable
from typing import Any, cast

import asyncpg
from tests.contract.ledger_rows import SEQ, Row
from tests.contract.overlap_claimers import QUEUE, STAGED, Executor, key, stage, turns_of

from harebell.contract.ticket import TICKET_BATCH
from harebell.domain.run_states import Reason
from harebell.messaging.publisher import OutgoingMessage
from harebell.runtime.clock import Clock
from harebell.storage.engine import database_time
from harebell.storage.runs import overlap, recovery
from harebell.ticker.recovery.stalled_overlaps import wake_stalled


async def test_a_schedule_whose_waiting_run_nobody_woke_is_found(ledger: asyncpg.Pool) -> None:
    first, _ = runs = [key(0), key(1)]
    await stage(ledger, runs)
    executor = Executor(ledger, QUEUE)
    await executor.claim(*runs)
    assert await overlap.find_stalled(ledger) == []

    await ledger.execute(
        "UPDATE runs SET state = 'cancelled', finished_at = now() WHERE scheduled_for = $1",
        first.scheduled_for,
    )

    assert await overlap.find_stalled(ledger) == [first.schedule_id]


async def test_a_lock_that_another_holds_is_passed_over_not_waited_for(
    ledger: asyncpg.Pool,
) -> None:
    taken, free = key(0, schedule=1).schedule_id, key(0, schedule=2).schedule_id

    async with ledger.acquire() as one, one.transaction(), ledger.acquire() as other:
        await overlap.lock(one, [taken])
        async with other.transaction():
            assert await overlap.try_lock(other, [taken, free]) == {free}


async def test_what_waits_for_its_turn_is_not_lost_until_it_has_expired(
    ledger: asyncpg.Pool,
) -> None:
    lost, waits, too_long = runs = [key(-3600 - number) for number in range(3)]
    await stage(ledger, [lost])
    await stage(ledger, [waits], Row(STAGED, 0, Reason.WAITING_FOR_OVERLAP))
    await stage(ledger, [too_long], Row(STAGED, 0, Reason.WAITING_FOR_OVERLAP, expired=True))
    await ledger.execute("UPDATE runs SET staged_at = due_at")

    found = {each.key for each in await recovery.find_lost_tickets(ledger)}

    assert found == {lost, too_long}
    assert set(runs) > found


class Recording:
    """In place of a publisher: what would have been published."""

    def __init__(self) -> None:
        self.messages: list[OutgoingMessage] = []

    async def publish_all(self, messages: Iterable[OutgoingMessage]) -> None:
        self.messages += messages


async def test_the_sweep_wakes_what_waits_behind_nobody_once_and_forgets_void_turns(
    ledger: asyncpg.Pool,
) -> None:
    first, second, third = runs = [key(number) for number in range(3)]
    await stage(ledger, runs)
    await Executor(ledger, QUEUE).claim(*runs)
    await ledger.execute(
        "UPDATE runs SET state = 'cancelled', finished_at = now() WHERE scheduled_for = $1",
        first.scheduled_for,
    )
    await ledger.execute("UPDATE runs SET staged_at = now() - interval '1 minute'")
    published = Recording()
    clock = Clock(lambda: database_time(ledger))
    await clock.refresh()

    for _ in range(2):
        await wake_stalled(ledger, cast("Any", published), clock)

    (bundle,) = published.messages
    (again,) = TICKET_BATCH.validate_json(bundle.body)
    assert (again.run_key, again.seq) == (second, SEQ + 1)
    turns_left = await turns_of(ledger, first.schedule_id)
    assert set(turns_left) == {second.scheduled_for, third.scheduled_for}
