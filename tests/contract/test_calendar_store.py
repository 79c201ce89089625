"""The statements of calendars, against PostgreSQL and the in-memory ledger."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

import asyncpg
import pytest
from tests.fakes.tickets import NINE

from harebell.contract.calendar import CalendarContent
from harebell.ticker.model.version import StoredCalendar
from harebell.ticker.store import versions as store

pytestmark = [pytest.mark.postgres, pytest.mark.requirement("P6")]

CONTENT: Final = CalendarContent.model_validate({"timezone": "UTC", "days": ["2040-12-25"]})


def calendar(
    name: str, *, tenant: str = "acme", deleted_after: int | None = None
) -> list[StoredCalendar]:
    """Return the versions of a calendar that was deleted some minutes after nine, or not."""
    first = StoredCalendar(tenant=tenant, name=name, version=1, content=CONTENT, accepted_at=NINE)
    if deleted_after is None:
        return [first]
    at = NINE + timedelta(minutes=deleted_after)
    return [first, replace(first, version=2, is_deleted=True, accepted_at=at)]


async def test_deleted_calendars_beyond_the_last_ones_are_forgotten(
    ledger: asyncpg.Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_DELETED_CALENDARS", 2)
    calendars = [
        *(each for k in range(3) for each in calendar(f"open-{k}")),
        *(each for k in range(5) for each in calendar(f"ended-{k}", deleted_after=k)),
        *calendar("of-another", tenant="umbrella", deleted_after=0),
    ]

    async with ledger.acquire() as connection:
        await store.save_calendars(connection, [each for each in calendars if each.version == 1])
        await store.save_calendars(connection, [each for each in calendars if each.version == 2])
        found = await store.load_calendars(connection, ["acme", "umbrella"])

    assert {name: each.version for (_, name), each in found.items()} == {
        "open-0": 1,
        "open-1": 1,
        "open-2": 1,
        "ended-3": 2,
        "ended-4": 2,
        "of-another": 2,
    }
