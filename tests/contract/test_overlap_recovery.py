"""Overlap slots whose runs no executor woke, and locks that the rescuer must skip."""

from collections.abc import Iterable
from typing import Any, cast

import asyncpg
from tests.contract.ledger_rows import SEQ, Row
from tests.contract.overlap_claimers import QUEUE, STAGED, Executor, insert_runs, key, slot_roles

from harebell.contract.ticket import TICKET_BATCH
from harebell.domain.run_states import Reason
from harebell.messaging.publisher import OutgoingMessage
from harebell.runtime.clock import Clock
from harebell.storage.engine import database_time
from harebell.storage.runs import overlap, recovery
from harebell.ticker.recovery.stalled_overlaps import wake_stalled


async def test_find_stalled_returns_a_schedule_whose_waiting_run_was_not_woken(
    ledger: asyncpg.Pool,
) -> None:
    first, _ = runs = [key(0), key(1)]
    await insert_runs(ledger, runs)
    executor = Executor(ledger, QUEUE)
    await executor.claim(*runs)
    assert await overlap.find_stalled(ledger) == []

    await ledger.execute(
        "UPDATE runs SET state = 'cancelled', finished_at = now() WHERE scheduled_for = $1",
        first.scheduled_for,
    )

    assert await overlap.find_stalled(ledger) == [first.schedule_id]


async def test_find_stalled_returns_a_schedule_whose_runs_all_wait(ledger: asyncpg.Pool) -> None:
    first, second = runs = [key(0), key(1)]
    await insert_runs(ledger, runs)
    await Executor(ledger, QUEUE).claim(*runs)
    await ledger.execute(
        "UPDATE runs SET state = 'cancelled', finished_at = now() WHERE scheduled_for = $1",
        first.scheduled_for,
    )
    async with ledger.acquire() as connection:
        await overlap.delete_stale_slots(connection, [first.schedule_id])
    assert await overlap.find_stalled(ledger) == []  # its last ticket may be on its way

    await ledger.execute("UPDATE runs SET staged_at = now() - interval '1 minute'")

    assert await overlap.find_stalled(ledger) == [second.schedule_id]


async def test_expired_run_that_waits_delays_no_other_run(ledger: asyncpg.Pool) -> None:
    expired, due = key(0), key(1)
    await insert_runs(
        ledger, [expired], Row(STAGED, 0, Reason.WAITING_FOR_OVERLAP, is_expired=True)
    )
    await insert_runs(ledger, [due])
    async with ledger.acquire() as connection:
        await overlap.save_slots(connection, {expired: overlap.Role.WAITING})

    plan = await Executor(ledger, QUEUE).claim(due)

    assert [claimed.key for claimed in plan.claimed] == [due]


async def test_try_lock_skips_a_locked_schedule(
    ledger: asyncpg.Pool,
) -> None:
    locked, free = key(0, schedule=1).schedule_id, key(0, schedule=2).schedule_id

    async with ledger.acquire() as one, one.transaction(), ledger.acquire() as other:
        await overlap.lock(one, [locked])
        async with other.transaction():
            assert await overlap.try_lock(other, [locked, free]) == {free}


async def test_find_lost_tickets_omits_a_run_that_waits_for_the_slot_until_it_expires(
    ledger: asyncpg.Pool,
) -> None:
    lost, waiting, expired = runs = [key(-3600 - number) for number in range(3)]
    await insert_runs(ledger, [lost])
    await insert_runs(ledger, [waiting], Row(STAGED, 0, Reason.WAITING_FOR_OVERLAP))
    await insert_runs(
        ledger, [expired], Row(STAGED, 0, Reason.WAITING_FOR_OVERLAP, is_expired=True)
    )
    await ledger.execute("UPDATE runs SET staged_at = due_at")

    found = {each.key for each in await recovery.find_lost_tickets(ledger)}

    assert found == {lost, expired}
    assert set(runs) > found


class RecordingPublisher:
    """A publisher that only records the messages."""

    def __init__(self) -> None:
        self.messages: list[OutgoingMessage] = []

    async def publish_all(self, messages: Iterable[OutgoingMessage]) -> None:
        self.messages += messages


async def test_wake_stalled_wakes_the_next_run_once_and_deletes_stale_slots(
    ledger: asyncpg.Pool,
) -> None:
    first, second, third = runs = [key(number) for number in range(3)]
    await insert_runs(ledger, runs)
    await Executor(ledger, QUEUE).claim(*runs)
    await ledger.execute(
        "UPDATE runs SET state = 'cancelled', finished_at = now() WHERE scheduled_for = $1",
        first.scheduled_for,
    )
    await ledger.execute("UPDATE runs SET staged_at = now() - interval '1 minute'")
    published = RecordingPublisher()
    clock = Clock(lambda: database_time(ledger))
    await clock.refresh()

    for _ in range(2):
        await wake_stalled(ledger, cast("Any", published), clock)

    (message,) = published.messages
    (ticket,) = TICKET_BATCH.validate_json(message.body)
    assert (ticket.run_key, ticket.seq) == (second, SEQ + 1)
    slots_left = await slot_roles(ledger, first.schedule_id)
    assert set(slots_left) == {second.scheduled_for, third.scheduled_for}
