"""The views of calendars, which every version of a client can read."""

from pydantic import Field

from harebell.contract.message import Message, empty_default
from harebell.contract.types import Instant
from harebell.contract.views import ViewResponse


class WeeklyHoursView(Message):
    """The weekly hours of a stored calendar."""

    weekdays: list[str]
    from_: str = Field(default="00:00", alias="from")
    to: str = "00:00"


class CalendarView(ViewResponse):
    """One version of a calendar. `schedules` is the number of schedules that use the calendar."""

    name: str
    version: int
    timezone: str
    days: list[str] = empty_default(list)
    weekly: list[WeeklyHoursView] = empty_default(list)
    changed_at: Instant
    actor: str | None = None
    note: str | None = None
    schedules: int | None = None
