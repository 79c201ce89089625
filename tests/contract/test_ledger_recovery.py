"""Lost tickets and lease holders: the times at which the rescuer finds a run."""

from datetime import timedelta
from typing import Final

import asyncpg
import pytest
from tests.contract.ledger_rows import HOLDER, SET_TIMES, Row, insert_rows, row_of

from harebell.domain.run_states import RunState
from harebell.storage.engine import DATABASE_TIME
from harebell.storage.runs import recovery, staging

STAGED: Final = Row(RunState.STAGED)
RETRYING: Final = Row(RunState.RETRYING, 1)
MINUTE: Final = 60


async def set_times(ledger: asyncpg.Pool, row: Row, due: float, staged: float | None) -> None:
    """Set the due time and the time of the last ticket, in seconds after now."""
    await ledger.execute(SET_TIMES, row.key.scheduled_for, row.key.schedule_id, due, staged)


async def find_lost(ledger: asyncpg.Pool) -> dict[object, bool]:
    """Return whether the ticket of each lost run can be in a queue, by its key."""
    return {each.key: each.can_be_queued for each in await recovery.find_lost_tickets(ledger)}


@pytest.mark.parametrize(
    ("due", "staged", "is_lost"),
    [
        (-1, -80, False),  # the ticket may be on its way
        (-8, -90, True),
        (-30, -90, True),
        (3, -80, False),
        # The second ticket was 10 s late, so the third one is at least 10 s younger.
        (-15, -5, False),
        (-25, -15, True),
        # After hours, the interval is ten minutes.
        (-120 * MINUTE, -5 * MINUTE, False),
        (-120 * MINUTE, -11 * MINUTE, True),
    ],
)
async def test_ticket_is_lost_after_its_due_time_and_an_interval_that_doubles_up_to_ten_minutes(
    ledger: asyncpg.Pool, due: float, staged: float, *, is_lost: bool
) -> None:
    await insert_rows(ledger, [STAGED])
    await set_times(ledger, STAGED, due, staged)

    assert (STAGED.key in await find_lost(ledger)) is is_lost


@pytest.mark.parametrize(("due", "can_be_queued"), [(-8, True), (-50, True), (-70, False)])
async def test_ticket_can_be_queued_for_a_minute_after_its_due_time(
    ledger: asyncpg.Pool, due: float, *, can_be_queued: bool
) -> None:
    await insert_rows(ledger, [STAGED])
    await set_times(ledger, STAGED, due, due - 80)

    assert await find_lost(ledger) == {STAGED.key: can_be_queued}


@pytest.mark.parametrize(("due", "is_found"), [(20, False), (8, True), (-8, True)])
async def test_retry_that_waits_in_the_database_is_found_ten_seconds_before_its_time(
    ledger: asyncpg.Pool, due: float, *, is_found: bool
) -> None:
    await insert_rows(ledger, [RETRYING])
    await set_times(ledger, RETRYING, due, None)

    assert await find_lost(ledger) == ({RETRYING.key: False} if is_found else {})


@pytest.mark.parametrize("has_expired", [False, True])
async def test_lease_holder_is_found_with_the_state_of_its_leases(
    ledger: asyncpg.Pool, *, has_expired: bool
) -> None:
    await insert_rows(ledger, [Row(RunState.RUNNING, 1, has_expired_lease=has_expired)])

    (holder,) = await recovery.find_lease_holders(ledger)

    assert (holder.name, holder.has_expired, holder.is_silent) == (HOLDER, has_expired, has_expired)


async def test_unresolved_run_that_is_staged_again_has_the_next_replay_number(
    ledger: asyncpg.Pool,
) -> None:
    unresolved = Row(RunState.UNRESOLVED, 1, "unknown_outcome")
    await insert_rows(ledger, [unresolved])
    before = await row_of(ledger, unresolved.key)

    async with ledger.acquire() as connection:
        await staging.resolve(connection, {unresolved.key: RunState.STAGED})

    after = await row_of(ledger, unresolved.key)
    assert after["replay_number"] == before["replay_number"] + 1
    assert (after["attempt"], after["finished_at"], after["expires_at"]) == (0, None, None)


@pytest.mark.parametrize(("due", "is_found"), [(-50, True), (-90, False)])
async def test_search_from_a_time_on_omits_the_runs_that_were_due_before(
    ledger: asyncpg.Pool, due: float, *, is_found: bool
) -> None:
    running = Row(RunState.RUNNING, 1, has_expired_lease=True)
    await insert_rows(ledger, [STAGED, running])
    for row in (STAGED, running):
        await set_times(ledger, row, due, due - 80)
    since = await ledger.fetchval(DATABASE_TIME) - timedelta(seconds=70)

    scope = recovery.SearchScope(since)
    lost = await recovery.find_lost_tickets(ledger, scope)
    holders = await recovery.find_lease_holders(ledger, scope)
    async with ledger.acquire() as connection, connection.transaction():
        expired = await recovery.lock_expired_leases(connection, [], by_time=True, since=since)

    found = [bool(each) for each in (lost, holders, expired)]
    assert found == [is_found] * 3
