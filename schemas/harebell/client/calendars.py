"""The client methods for calendars."""

from collections.abc import Mapping, Sequence
from typing import Any

from harebell.client.base import ClientBase
from harebell.contract.calendar import CalendarResponse
from harebell.contract.calendar_views import CalendarView
from harebell.contract.responses import Page


class CalendarMethods(ClientBase):
    """The methods for the calendars of this client's tenant."""

    async def put_calendar(
        self,
        name: str,
        *,
        days: Sequence[str] = (),
        weekly: Sequence[Mapping[str, Any]] = (),
        timezone: str = "UTC",
        expected_version: int | None = None,
        note: str | None = None,
        request_id: str | None = None,
    ) -> CalendarResponse:
        """Create a calendar or replace its content.

        `days` contains dates such as `2026-12-25` and ranges such as `2026-12-24/2027-01-01`.
        The response contains the number of schedules that get other planned runs.
        """
        fields = {
            "name": name,
            "days": list(days),
            "weekly": list(weekly),
            "timezone": timezone,
            "expected_version": expected_version,
            "note": note,
            "request_id": request_id,
        }
        return await self._command(CalendarResponse, "calendar.put", fields)

    async def delete_calendar(
        self, name: str, *, note: str | None = None, request_id: str | None = None
    ) -> CalendarResponse:
        """Delete a calendar that no schedule uses."""
        fields = {"name": name, "note": note, "request_id": request_id}
        return await self._command(CalendarResponse, "calendar.delete", fields)

    async def calendar(self, name: str, *, version: int | None = None) -> CalendarView:
        """Return one calendar, in its latest version or in another one."""
        fields = {"name": name, "version": version}
        calendar: CalendarView = await self._query("calendar.get", fields)
        return calendar

    async def calendars(self) -> list[CalendarView]:
        """Return the calendars of the tenant, by name."""
        page: Page[CalendarView] = await self._query("calendar.list", {})
        return page.items
