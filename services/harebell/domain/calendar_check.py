"""Checks of calendars and of the calendars of a schedule, as far as no table decides. Pure."""

from datetime import timedelta
from typing import Final

from harebell.contract.calendar import CalendarContent, ScheduleCalendars
from harebell.contract.errors import InvalidInput
from harebell.contract.policy import OnExcluded
from harebell.contract.when import AnyOf, CronRule, Every, Recurring, When, WhenRule
from harebell.domain.cron.parser import times_per_day
from harebell.domain.cron.timezones import load_timezone
from harebell.domain.validation import naming_field

MAX_MOVED_TIMES: Final = 4  # on one day, because a search examines the times of 60 days
_DAY: Final = timedelta(days=1)


def check_calendars(
    calendars: ScheduleCalendars | None, when: When | None, field: str = "calendars"
) -> None:
    """Raise `InvalidInput` for calendars with a rule that is not recurring from its start.

    A blackout decides no scheduled time, so every rule may have one.
    """
    if calendars is None or when is None or not calendars.decides_times:
        return
    is_from_completion = isinstance(when, Every) and when.from_ == "completion"
    if not isinstance(when, Recurring) or is_from_completion:
        reason = (
            "A schedule that excludes or includes calendars must have cron, any_of, or every "
            "without `from: completion`, because no other rule has times that a calendar can "
            "exclude."
        )
        raise InvalidInput(reason, field=field, code="not_recurring")
    count = 0 if calendars.on_excluded is OnExcluded.SKIP else _times_per_day(when)
    if count > MAX_MOVED_TIMES:
        reason = (
            f"A schedule that moves excluded times must have at most {MAX_MOVED_TIMES} times "
            f"on one day, not {count}."
        )
        raise InvalidInput(reason, field=f"{field}.on_excluded", code="too_frequent")


def _times_per_day(when: WhenRule) -> int:
    """Return the maximum number of recurring times on one day."""
    match when:
        case CronRule(cron=cron):
            return times_per_day(cron)
        case Every(every=every):
            return -(-_DAY // every)
        case AnyOf(any_of=rules):
            return sum(_times_per_day(each) for each in rules)
        case _:
            return 0


def check_pinned(pinned: object, field: str = "pinned_calendars") -> None:
    """Raise `InvalidInput` for pinned calendars in a command."""
    if pinned:
        reason = "The field pinned_calendars must be absent, because Harebell sets it itself."
        raise InvalidInput(reason, field=field, code="read_only_field")


def check_content(content: CalendarContent) -> None:
    """Raise `UnknownTimezone` for a time zone that does not exist."""
    with naming_field("timezone"):
        load_timezone(content.timezone)
