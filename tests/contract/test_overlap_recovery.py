"""Overlap slots whose runs no executor woke, and locks that the rescuer must skip."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, cast

import asyncpg
from tests.contract.ledger_rows import FIND_RUN, SEQ, Row
from tests.contract.overlap_claimers import QUEUE, STAGED, Executor, insert_runs, key, slot_roles

from harebell.contract.ids import RunKey
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


async def test_find_lost_tickets_returns_an_expired_run_before_its_next_republication(
    ledger: asyncpg.Pool,
) -> None:
    """A breaker may have deferred the ticket, whose next copy is due in ten minutes."""
    recent, expired = key(-3600), key(-3601)
    await insert_runs(ledger, [recent])
    await insert_runs(ledger, [expired], Row(STAGED, is_expired=True))

    (found,) = await recovery.find_lost_tickets(ledger)

    assert (found.key, found.can_be_queued) == (expired, False)


async def first_ticket(ledger: asyncpg.Pool, run: RunKey) -> tuple[datetime, bool]:
    """Return the time of the first ticket, and whether the last one is a copy."""
    row = await ledger.fetchrow(FIND_RUN, run.scheduled_for, run.schedule_id)
    is_copy = row["republished_at"] == row["staged_at"]
    return row["first_staged_at"] if is_copy else row["staged_at"], is_copy


async def test_republication_keeps_the_time_of_the_first_ticket(ledger: asyncpg.Pool) -> None:
    run = key(-60)
    await insert_runs(ledger, [run])
    staged = await first_ticket(ledger, run)
    for _ in range(2):
        async with ledger.acquire() as connection, connection.transaction():
            await recovery.mark_restaged(connection, [run])

    assert staged[1] is False
    assert await first_ticket(ledger, run) == (staged[0], True)


async def test_repeated_wake_keeps_the_time_of_the_first_wake(ledger: asyncpg.Pool) -> None:
    run = key(-60)
    await insert_runs(ledger, [run], Row(STAGED, 0, Reason.WAITING_FOR_OVERLAP))
    staged, _ = await first_ticket(ledger, run)
    found = []
    for min_ticket_age in (1e-6, 1e-6, 0):  # by the rescuer twice, and by a completion
        async with ledger.acquire() as connection, connection.transaction():
            await overlap.wake(connection, [run], min_ticket_age=min_ticket_age)
        found.append(await first_ticket(ledger, run))

    assert staged < found[0][0] == found[1][0] < found[2][0]
    assert [is_copy for _, is_copy in found] == [True, True, False]


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
