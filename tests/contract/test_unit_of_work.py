"""The statements that load schedules and runs, against PostgreSQL."""

from collections.abc import Iterable
from typing import Final
from uuid import UUID

import asyncpg
import pytest
from tests.contract.ledger_rows import ROWS, Row, insert_rows
from tests.fakes.schedules import ID, definition
from tests.fakes.tickets import NINE, after

from harebell.domain.run_states import Reason, RunState, ScheduleState
from harebell.ticker.model.unit_of_work import ScheduleRecord
from harebell.ticker.model.version import Version, VersionStatus
from harebell.ticker.store import schedules
from harebell.ticker.store.versions import VersionCache, save_active_versions, save_versions

pytestmark = pytest.mark.postgres

LATER: Final = UUID(int=28)  # a schedule with pending versions


@pytest.mark.requirement("S06")
async def test_find_counted_omits_runs_that_were_cancelled_without_an_attempt(
    ledger: asyncpg.Pool,
) -> None:
    await insert_rows(ledger, ROWS)
    unattempted = {row.key for row in ROWS if row.state is RunState.CANCELLED and row.attempt == 0}

    async with ledger.acquire() as connection:
        counted = await schedules.find_counted(connection, [row.key for row in ROWS])

    assert counted == {row.key for row in ROWS} - unattempted
    assert unattempted


@pytest.mark.requirement("S14")
async def test_find_unstaged_by_pause_returns_runs_that_a_pause_cancelled_without_an_attempt(
    ledger: asyncpg.Pool,
) -> None:
    await insert_rows(ledger, ROWS)

    async with ledger.acquire() as connection:
        found = await schedules.find_unstaged_by_pause(connection, [row.key for row in ROWS])

    assert found == {Row(RunState.CANCELLED, 0, Reason.PAUSED).key}


async def test_unit_of_work_contains_the_last_version_number(ledger: asyncpg.Pool) -> None:
    every = definition({"every": "30s"})
    one, two = (
        Version.create(ID, number, tenant="acme", definition=every, at=NINE) for number in (1, 2)
    )
    async with ledger.acquire() as connection:
        await save_versions(connection, [(one, VersionStatus.ACTIVE), (two, VersionStatus.MISSED)])
        await save_active_versions(connection, [one])
        record = ScheduleRecord(
            one, ScheduleState.ACTIVE, planned_until=NINE, changed_at=NINE, next_at=NINE
        )
        await schedules.save_states(connection, [record])
        async with connection.transaction():
            unit = await schedules.load_unit_of_work(connection, VersionCache(), [ID])
            (due,) = await schedules.load_due(connection, VersionCache(), NINE, limit=1)

    assert (unit.schedules[ID].last_number, unit.schedules[ID].next_number) == (2, 3)
    assert (due.version.number, due.last_number) == (1, 1)


@pytest.mark.requirement("S28")
async def test_pending_versions_are_loaded_in_the_order_of_their_effective_times(
    ledger: asyncpg.Pool,
) -> None:
    every = definition({"every": "30s"})
    one = Version.create(LATER, 1, tenant="acme", definition=every, at=NINE)
    times = {2: 300, 3: 100, 4: 200, 5: 150}
    later = {
        number: Version.create(
            LATER, number, tenant="acme", definition=every, at=NINE, effective_at=after(seconds)
        )
        for number, seconds in times.items()
    }
    async with ledger.acquire() as connection:
        statuses = dict.fromkeys(later, VersionStatus.PENDING) | {5: VersionStatus.SUPERSEDED}
        pending = [(version, statuses[number]) for number, version in later.items()]
        await save_versions(connection, [(one, VersionStatus.ACTIVE), *pending])
        record = ScheduleRecord(
            one,
            ScheduleState.ACTIVE,
            planned_until=NINE,
            changed_at=NINE,
            next_at=NINE,
            pending=(later[3], later[4], later[2]),
        )
        await schedules.save_states(connection, [record])
        async with connection.transaction():
            unit = await schedules.load_unit_of_work(connection, VersionCache(), [LATER])
            soon = await schedules.load_due(connection, VersionCache(), after(99), limit=10)
            due = await schedules.load_due(
                connection, VersionCache(), NINE, limit=10, plan_until=after(100)
            )

    assert [pending_numbers(records) for records in (unit.schedules.values(), soon, due)] == [
        [3, 4, 2],
        [3],
        [3, 4, 2],
    ]


def pending_numbers(records: Iterable[ScheduleRecord]) -> list[int]:
    """Return the numbers of the pending versions of the schedule `LATER`."""
    (record,) = (each for each in records if each.id == LATER)
    return [version.number for version in record.pending]
