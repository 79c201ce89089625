"""The answers to `calendar.get` and `calendar.list`, and the calendars of a definition."""

from typing import Final, TypeVar

from sqlalchemy import text

from harebell.contract.calendar import MAX_CALENDARS, CalendarContent, PinnedCalendar, WeeklyHours
from harebell.contract.calendar_views import CalendarView, WeeklyHoursView
from harebell.contract.errors import InvalidInput, NotFound
from harebell.contract.queries import CalendarGet
from harebell.contract.responses import Page
from harebell.contract.schedule import Definition
from harebell.intake.queries.store import IntakeStore
from harebell.intake.queries.views import Row

D = TypeVar("D", bound=Definition)

_LATEST: Final = text("""
SELECT listed.*, (SELECT count(*) FROM schedule_calendars AS used
                  JOIN schedule_state ON schedule_state.schedule_id = used.schedule_id
                  WHERE used.tenant = listed.tenant AND used.calendar = listed.name
                    AND schedule_state.state NOT IN ('completed', 'cancelled', 'deleted')
                 ) AS schedules
FROM (SELECT DISTINCT ON (name) * FROM calendar_versions
      WHERE tenant = :tenant AND (CAST(:names AS text[]) IS NULL OR name = ANY(:names))
      ORDER BY name, version DESC) AS listed
WHERE NOT listed.is_deleted ORDER BY listed.name LIMIT :number
""")
_VERSION: Final = text("""
SELECT * FROM calendar_versions
WHERE tenant = :tenant AND name = :name AND version = :version AND NOT is_deleted
""")


async def calendar_view(store: IntakeStore, tenant: str, query: CalendarGet) -> CalendarView:
    """Return one calendar. Raise `NotFound` for a calendar or a version that does not exist."""
    if query.version is None:
        rows = await _latest(store, tenant, [query.name])
    else:
        key = {"tenant": tenant, "name": query.name, "version": query.version}
        rows = await store.read(_VERSION.bindparams(**key))
    if not rows:
        version = "" if query.version is None else f" in version {query.version}"
        reason = f"The calendar must exist in this tenant, but {query.name} does not{version}."
        raise NotFound(reason, field="name")
    return _view(rows[0])


async def calendar_page(store: IntakeStore, tenant: str) -> Page[CalendarView]:
    """Return the calendars of a tenant, by name."""
    return Page[CalendarView](items=[_view(row) for row in await _latest(store, tenant, None)])


async def with_latest_calendars(store: IntakeStore, tenant: str, definition: D) -> D:
    """Return the definition with the latest versions of its calendars.

    Raise `InvalidInput` for a calendar that does not exist.
    """
    names = definition.calendars
    if names is None:
        return definition
    wanted = names.names
    rows = {row["name"]: row for row in await _latest(store, tenant, wanted)}
    missing = next((name for name in wanted if name not in rows), None)
    if missing is not None:
        reason = f"The calendar must exist in this tenant, but {missing} does not."
        raise InvalidInput(reason, field="definition.calendars", code="unknown_calendar")
    pinned = [
        PinnedCalendar.model_validate({**row["content"], "name": name, "version": row["version"]})
        for name, row in rows.items()
    ]
    return definition.model_copy(update={"pinned_calendars": pinned})


async def _latest(store: IntakeStore, tenant: str, names: list[str] | None) -> list[Row]:
    return await store.read(_LATEST.bindparams(tenant=tenant, names=names, number=MAX_CALENDARS))


def _view(row: Row) -> CalendarView:
    content = CalendarContent.model_validate(row["content"])
    return CalendarView(
        name=row["name"],
        version=row["version"],
        timezone=content.timezone,
        days=content.days,
        weekly=[
            WeeklyHoursView.model_validate(each.model_dump(by_alias=True))
            for each in content.weekly
        ],
        changed_at=row["accepted_at"],
        actor=row["actor"],
        note=row["note"],
        schedules=row.get("schedules"),
    )


def _hours_view(hours: WeeklyHours) -> WeeklyHoursView:
    return WeeklyHoursView.model_validate(hours.model_dump(by_alias=True))
