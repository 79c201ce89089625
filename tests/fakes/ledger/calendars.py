"""The statements of calendars in `ticker/store/versions.py` in memory."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from uuid import UUID

from tests.fakes.ledger.pool import Record, answers
from tests.fakes.ledger.runs import unnested
from tests.fakes.ledger.store import Transaction

from harebell.ticker.store.versions import STATEMENTS

CALENDARS = "calendar_versions"
USES = "schedule_calendars"
Names = Sequence[str]


@answers(STATEMENTS.load_calendars)
def load(tx: Transaction, tenants: Names) -> Iterator[Record]:
    return _latest(tx, tenants)


def _latest(tx: Transaction, tenants: Names) -> Iterator[Record]:
    latest = {
        (row["tenant"], row["name"]): row
        for row in sorted(tx.rows(CALENDARS), key=lambda each: each["version"])
        if row["tenant"] in tenants
    }
    return (latest[key] for key in sorted(latest))


@answers(STATEMENTS.save_calendars)
def save(  # one parameter for each column
    tx: Transaction,
    tenants: Names,
    names: Names,
    versions: Sequence[int],
    contents: Names,
    deleted: Sequence[bool],
    accepted: Sequence[datetime],
    actors: Sequence[str | None],
    notes: Sequence[str | None],
) -> None:
    columns = (tenants, names, versions, contents, deleted, accepted, actors, notes)
    for values in unnested(*columns):
        row = dict(zip(_COLUMNS, values, strict=True))
        tx.put(CALENDARS, (row["tenant"], row["name"], row["version"]), row)


@answers(STATEMENTS.delete_old_calendars)
def delete_old(
    tx: Transaction, tenants: Names, names: Names, versions: Sequence[int]
) -> Iterator[Record]:
    bounds = dict(zip(zip(tenants, names, strict=True), versions, strict=True))
    for row in list(tx.rows(CALENDARS)):
        key = (row["tenant"], row["name"])
        if key in bounds and row["version"] <= bounds[key]:
            tx.put(CALENDARS, (*key, row["version"]), None)
    return iter(())


@answers(STATEMENTS.forget_deleted_calendars)
def forget_deleted(tx: Transaction, tenants: Names, number: int) -> Iterator[Record]:
    for tenant in tenants:
        deleted = [row for row in _latest(tx, [tenant]) if row["is_deleted"]]
        deleted.sort(key=lambda each: (-each["accepted_at"].timestamp(), each["name"]))
        forgotten = {each["name"] for each in deleted[number:]}
        for row in list(tx.rows(CALENDARS)):
            if row["tenant"] == tenant and row["name"] in forgotten:
                tx.put(CALENDARS, (tenant, row["name"], row["version"]), None)
    return iter(())


@answers(STATEMENTS.find_schedules_of_calendar)
def find_schedules(tx: Transaction, tenant: str, calendar: str, limit: int) -> list[Record]:
    found = [row for row in tx.rows(USES) if (row["tenant"], row["calendar"]) == (tenant, calendar)]
    return sorted(found, key=lambda each: each["schedule_id"].int)[:limit]


@answers(STATEMENTS.save_calendar_uses)
def save_uses(tx: Transaction, tenants: Names, names: Names, schedules: Sequence[UUID]) -> None:
    for key in zip(tenants, names, schedules, strict=True):
        tx.put(USES, key, dict(zip(("tenant", "calendar", "schedule_id"), key, strict=True)))


@answers(STATEMENTS.delete_calendar_uses)
def delete_uses(tx: Transaction, tenants: Names, names: Names, schedules: Sequence[UUID]) -> None:
    for key in zip(tenants, names, schedules, strict=True):
        tx.put(USES, key, None)


_COLUMNS = ("tenant", "name", "version", "content", "is_deleted", "accepted_at", "actor", "note")
