"""Calendars: named sets of local days and weekly hours of one tenant, as a user writes them."""

from datetime import date
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from harebell.contract.command_base import CommandBase
from harebell.contract.message import (
    Message,
    StrictMessage,
    empty_default,
    invalid,
    quoted,
    text_of_form,
)
from harebell.contract.policy import OnExcluded
from harebell.contract.types import TIME_OF_DAY, Count, ShortText

MAX_CALENDARS: Final = 100  # of one tenant
MAX_DAYS_LENGTH: Final = len("2026-12-24/2026-12-31")
MAX_CALENDAR_DAYS: Final = 500  # days and ranges of one calendar
MAX_CALENDAR_HOURS: Final = 20  # weekly hours of one calendar
MAX_SCHEDULE_CALENDARS: Final = 4  # that one schedule excludes, and that it includes
MAX_BLACKOUTS: Final = 2  # of one schedule, because each ticket contains their content
MAX_OPEN_DAY: Final = 31  # of one month
WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def parse_days(text: str) -> tuple[date, date]:
    """Return the first and the last day of a day or of a range. Raise `ValueError`."""
    first, separator, last = text.partition("/")
    days = date.fromisoformat(first), date.fromisoformat(last if separator else first)
    if days[1] < days[0] or len(text) not in (10, MAX_DAYS_LENGTH):
        raise ValueError(text)
    return days


def _check_days(text: str) -> str:
    try:
        parse_days(text)
    except ValueError:
        reason = (
            "The days must be a date such as 2026-12-25, or a range such as "
            f"2026-12-24/2027-01-01, not {quoted(text)}."
        )
        raise invalid("invalid_days", reason) from None
    return text


def _check_open_day(number: int) -> int:
    if number == 0:
        reason = "The open day must be 1 for the first one or -1 for the last one, not 0."
        raise invalid("invalid_open_day", reason)
    return number


CalendarName: TypeAlias = Annotated[
    str,
    text_of_form(
        r"^[a-z0-9][a-z0-9._-]{0,62}$",
        "have 1 to 63 lower-case letters, digits, dots, _ and -, and begin with a letter or digit",
    ),
]
CalendarDays: TypeAlias = Annotated[
    str,
    AfterValidator(_check_days),
    WithJsonSchema({"type": "string", "maxLength": MAX_DAYS_LENGTH}),
]
Weekday: TypeAlias = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
ClockTime: TypeAlias = Annotated[str, TIME_OF_DAY]


class WeeklyHours(StrictMessage):
    """The local times from `from` up to, without, `to`, on some weekdays.

    The whole day is the default. A `to` that is not later than `from` is on the next day.
    """

    weekdays: Annotated[list[Weekday], Field(min_length=1, max_length=len(WEEKDAYS))]
    from_: ClockTime = Field(default="00:00", alias="from")
    to: ClockTime = "00:00"


class CalendarContent(StrictMessage):
    """The days and the weekly hours of a calendar in its time zone."""

    timezone: ShortText = "UTC"
    days: Annotated[list[CalendarDays], Field(max_length=MAX_CALENDAR_DAYS)] = empty_default(list)
    weekly: Annotated[list[WeeklyHours], Field(max_length=MAX_CALENDAR_HOURS)] = empty_default(list)

    @model_validator(mode="after")
    def _check_entries(self) -> "CalendarContent":
        if not self.days and not self.weekly:
            reason = "The calendar must contain at least one day or one entry of weekly hours."
            raise invalid("empty_calendar", reason)
        return self

    def to_json(self) -> dict[str, object]:
        """Return the content as JSON without defaults."""
        return self.content.model_dump(mode="json", by_alias=True, exclude_defaults=True)

    @property
    def content(self) -> "CalendarContent":
        """Return the fields of this class only."""
        return CalendarContent(timezone=self.timezone, days=self.days, weekly=self.weekly)


class PinnedCalendar(CalendarContent):
    """One version of a calendar, as a version of a schedule contains it."""

    name: CalendarName
    version: Count


class ScheduleCalendars(StrictMessage):
    """The calendars of a schedule, by name.

    A scheduled time within a calendar of `exclude` gets no run. With `include`, a scheduled time
    gets a run only within one of these calendars. `on_excluded` skips the other times, or moves
    them to the same local time on the nearest open day. With `open_day`, only the times on that
    open day of each month get a run, and -1 is the last one. No attempt starts within a calendar
    of `blackout`, whose end the runs wait for.
    """

    exclude: Annotated[list[CalendarName], Field(max_length=MAX_SCHEDULE_CALENDARS)] = (
        empty_default(list)
    )
    include: Annotated[list[CalendarName], Field(max_length=MAX_SCHEDULE_CALENDARS)] = (
        empty_default(list)
    )
    blackout: Annotated[list[CalendarName], Field(max_length=MAX_BLACKOUTS)] = empty_default(list)
    on_excluded: OnExcluded = OnExcluded.SKIP
    open_day: (
        Annotated[
            int,
            Field(ge=-MAX_OPEN_DAY, le=MAX_OPEN_DAY, strict=True),
            AfterValidator(_check_open_day),
        ]
        | None
    ) = None

    @model_validator(mode="after")
    def _check_names(self) -> "ScheduleCalendars":
        if not self.names:
            reason = (
                "The field must name at least one calendar in `exclude`, `include` or `blackout`."
            )
            raise invalid("no_calendar", reason)
        has_rule = self.open_day is not None or self.on_excluded is not OnExcluded.SKIP
        if has_rule and not self.decides_times:
            reason = (
                "The field must name a calendar in `exclude` or `include` with `on_excluded` or "
                "`open_day`, because a blackout decides no scheduled time."
            )
            raise invalid("no_calendar", reason)
        if self.open_day is not None and self.on_excluded is not OnExcluded.SKIP:
            reason = "The field `on_excluded` must be skip with `open_day`, whose days are open."
            raise invalid("open_day_moved", reason)
        return self

    @property
    def decides_times(self) -> bool:
        """Return whether the calendars decide scheduled times, and not only starts."""
        return bool(self.exclude or self.include)

    @property
    def names(self) -> list[str]:
        """Return the names of the calendars, each once."""
        return list(dict.fromkeys((*self.exclude, *self.include, *self.blackout)))


class CalendarPut(CalendarContent, CommandBase):
    """Create a calendar, or replace its content.

    The planned runs of the schedules that use the calendar change with it.
    """

    name: CalendarName
    expected_version: Count | None = None
    note: ShortText | None = None


class CalendarDelete(CommandBase):
    """Delete a calendar that no schedule uses. A later put continues its version numbers."""

    name: CalendarName
    note: ShortText | None = None


class CalendarResponse(Message):
    """The result of a command to a calendar.

    `status` is created, updated, unchanged or deleted. `affected` is the number of schedules that
    the command gave a new version. `rejected` maps the id of another schedule to the reason.
    """

    ok: Literal[True] = True
    name: str
    version: int
    status: str
    affected: int = 0
    rejected: dict[str, str] = empty_default(dict)


CALENDAR_COMMANDS: Final[dict[str, type[CommandBase]]] = {
    "calendar.put": CalendarPut,
    "calendar.delete": CalendarDelete,
}
