"""What a ticker reads of a schedule and its runs before it decides."""

import asyncpg
import pytest
from tests.contract.ledger_rows import ROWS, Row, put
from tests.schedules import ID, definition
from tests.tickets import NINE

from harebell.kernel.ledger import Reason, RunState, ScheduleState
from harebell.ticker import store
from harebell.ticker.book import Entry
from harebell.ticker.version import Fate, Version
from harebell.ticker.versions import Versions, save, show

pytestmark = pytest.mark.postgres


async def test_s06_runs_that_were_withdrawn_before_they_began_do_not_count(
    ledger: asyncpg.Pool,
) -> None:
    await put(ledger, ROWS)
    unbegun = {row.key for row in ROWS if row.state is RunState.CANCELLED and row.attempt == 0}

    async with ledger.acquire() as connection:
        counted = await store.counted(connection, [row.key for row in ROWS])

    assert counted == {row.key for row in ROWS} - unbegun
    assert unbegun


async def test_s14_a_pause_took_back_what_it_cancelled_before_it_began(
    ledger: asyncpg.Pool,
) -> None:
    await put(ledger, ROWS)

    async with ledger.acquire() as connection:
        found = await store.taken_back(connection, [row.key for row in ROWS])

    assert found == {Row(RunState.CANCELLED, 0, Reason.PAUSED).key}


async def test_a_schedule_is_read_with_the_last_number_that_was_used(ledger: asyncpg.Pool) -> None:
    when = definition({"every": "30s"})
    one, two = (
        Version.of(ID, number, tenant="acme", definition=when, at=NINE) for number in (1, 2)
    )
    async with ledger.acquire() as connection:
        await save(connection, [(one, Fate.COMMENCED), (two, Fate.MISSED)])
        await show(connection, [one])
        entry = Entry(one, ScheduleState.ACTIVE, planned_to=NINE, changed_at=NINE, next_at=NINE)
        await store.save_states(connection, [entry])
        async with connection.transaction():
            book = await store.load_book(connection, Versions(), [ID], [])
            (due,) = await store.load_due(connection, Versions(), NINE, 1)

    assert (book.entries[ID].last_number, book.entries[ID].following_number) == (2, 3)
    assert (due.version.number, due.last_number) == (1, 1)
