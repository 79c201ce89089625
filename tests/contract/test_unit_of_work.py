"""What a ticker reads of a schedule and its runs before it decides."""

import asyncpg
import pytest
from tests.contract.ledger_rows import ROWS, Row, insert_rows
from tests.fakes.schedules import ID, definition
from tests.fakes.tickets import NINE

from harebell.domain.run_states import Reason, RunState, ScheduleState
from harebell.ticker.model.unit_of_work import ScheduleRecord
from harebell.ticker.model.version import Version, VersionStatus
from harebell.ticker.store import schedules
from harebell.ticker.store.versions import VersionCache, save_versions, save_active_versions

pytestmark = pytest.mark.postgres


@pytest.mark.requirement("S06")
async def test_runs_that_were_withdrawn_before_they_began_do_not_count(
    ledger: asyncpg.Pool,
) -> None:
    await insert_rows(ledger, ROWS)
    unbegun = {row.key for row in ROWS if row.state is RunState.CANCELLED and row.attempt == 0}

    async with ledger.acquire() as connection:
        counted = await schedules.find_counted(connection, [row.key for row in ROWS])

    assert counted == {row.key for row in ROWS} - unbegun
    assert unbegun


@pytest.mark.requirement("S14")
async def test_a_pause_took_back_what_it_cancelled_before_it_began(
    ledger: asyncpg.Pool,
) -> None:
    await insert_rows(ledger, ROWS)

    async with ledger.acquire() as connection:
        found = await schedules.find_unstaged_by_pause(connection, [row.key for row in ROWS])

    assert found == {Row(RunState.CANCELLED, 0, Reason.PAUSED).key}


async def test_a_schedule_is_read_with_the_last_number_that_was_used(ledger: asyncpg.Pool) -> None:
    when = definition({"every": "30s"})
    one, two = (
        Version.create(ID, number, tenant="acme", definition=when, at=NINE) for number in (1, 2)
    )
    async with ledger.acquire() as connection:
        await save_versions(connection, [(one, VersionStatus.ACTIVE), (two, VersionStatus.MISSED)])
        await save_active_versions(connection, [one])
        entry = ScheduleRecord(
            one, ScheduleState.ACTIVE, planned_until=NINE, changed_at=NINE, next_at=NINE
        )
        await schedules.save_states(connection, [entry])
        async with connection.transaction():
            book = await schedules.load_unit_of_work(connection, VersionCache(), [ID], [])
            (due,) = await schedules.load_due(connection, VersionCache(), NINE, 1)

    assert (book.schedules[ID].last_number, book.schedules[ID].next_number) == (2, 3)
    assert (due.version.number, due.last_number) == (1, 1)
