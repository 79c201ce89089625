"""Checks of `when` and of calendars beyond their shape. Pure."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from harebell.contract.calendar import CalendarContent, ScheduleCalendars
from harebell.contract.errors import InvalidInput, Rejected
from harebell.contract.policy import OnExcluded
from harebell.contract.types import duration_text, instant_text
from harebell.contract.when import AnyOf, At, CronRule, Every, Recurring, When, WhenRule
from harebell.domain.cron import Cron
from harebell.domain.cron.parser import times_per_day
from harebell.domain.cron.timezones import load_timezone
from harebell.domain.recurrence import bounds

MAX_MOVED_TIMES: Final = 4  # on one day, because a search examines the times of 60 days
# Of `at` before the acceptance, for slow senders and for clocks that are wrong.
MAX_PAST_START: Final = timedelta(hours=1)
_DAY: Final = timedelta(days=1)


def check_when(
    when: WhenRule, schedule_id: UUID | None, *, now: datetime, field: str = "when"
) -> None:
    """Raise `Rejected` with the path of the fault below `field`."""
    if isinstance(when, At):
        _check_past(when, now, field)
    if isinstance(when, Recurring):
        _check_recurring(when, field)
    if isinstance(when, CronRule):
        _check_cron(when, schedule_id, field)
    if isinstance(when, AnyOf):
        for index, rule in enumerate(when.any_of):
            check_when(rule, schedule_id, now=now, field=f"{field}.any_of[{index}]")


def check_expiry(
    when: WhenRule, expires_after: timedelta | None, field: str = "expires_after"
) -> None:
    """Raise `InvalidInput` if the jitter delays runs until they expire."""
    if expires_after is not None and when.jitter is not None and when.jitter >= expires_after:
        reason = (
            f"Runs that begin {duration_text(when.jitter)} late, which the jitter allows, would "
            f"expire before they start, so the time must be longer, not "
            f"{duration_text(expires_after)}."
        )
        raise InvalidInput(reason, field=field, code="invalid_expiry")


@contextmanager
def naming_field(field: str) -> Iterator[None]:
    """Set the field of an error, because the check of a value does not know its field."""
    try:
        yield
    except Rejected as error:
        error.field = field
        raise


@contextmanager
def prefixing_field(prefix: str) -> Iterator[None]:
    """Put `prefix` before the field of an error."""
    try:
        yield
    except Rejected as error:
        error.field = f"{prefix}.{error.field}" if error.field else prefix
        raise


def _check_past(rule: At, now: datetime, field: str) -> None:
    if now - rule.at > MAX_PAST_START:
        reason = (
            f"The time must be at most {duration_text(MAX_PAST_START)} before the current time "
            f"{instant_text(now)}, not {instant_text(rule.at)}."
        )
        raise InvalidInput(reason, field=f"{field}.at", code="too_late")


def _check_recurring(rule: Recurring, field: str) -> None:
    with naming_field(f"{field}.timezone"):
        load_timezone(rule.timezone)
    start, end = bounds(rule)
    if start is not None and end is not None and start > end:
        reason = f"The end must be later than the start {instant_text(start)}."
        raise InvalidInput(reason, field=f"{field}.end", code="invalid_bounds")


def _check_cron(rule: CronRule, schedule_id: UUID | None, field: str) -> None:
    with naming_field(f"{field}.cron"):
        Cron.parse(
            rule.cron,
            rule.timezone,
            hash_id=schedule_id,
            day_match=rule.day_match,
            dst_gap=rule.dst_gap,
            dst_overlap=rule.dst_overlap,
        )


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
