"""`Cron`: a checked cron expression in a time zone, with a cache of its last result."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Self
from uuid import UUID
from zoneinfo import ZoneInfo

from harebell.contract.errors import InvalidCron
from harebell.contract.when import DayMatch, DstGap, DstOverlap
from harebell.domain.cron.matcher import CronMatcher
from harebell.domain.cron.next_time import DstRule, next_time_after
from harebell.domain.cron.parser import has_wild_day, parse
from harebell.domain.cron.timezones import load_timezone

MAX_CACHED: Final = 16_384  # expressions
# A fixed time, so that the same expression is accepted or rejected on every day.
_CHECKED_FROM: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """A cron expression in a time zone. An instance is always valid."""

    expression: str
    zone: ZoneInfo
    matcher: CronMatcher
    dst: DstRule

    @property
    def differs_in_debian(self) -> bool:
        """Return whether Debian's cron requires both day fields, of which one is enough here."""
        return not self.matcher.needs_both_days and has_wild_day(self.expression)

    @classmethod
    def parse(
        cls,
        expression: str,
        zone: str = "UTC",
        *,
        hash_id: UUID | None = None,
        day_match: DayMatch | None = None,
        dst_gap: DstGap | None = None,
        dst_overlap: DstOverlap | None = None,
    ) -> Self:
        """Return the checked expression. `hash_id` is the schedule id that decides `H`.

        Raise `InvalidCron` or `UnknownTimezone`.
        """
        parsed = parse(expression, hash_id)
        cron = cls(
            expression=expression,
            zone=load_timezone(zone),
            matcher=CronMatcher(parsed.text, needs_both_days=day_match is DayMatch.BOTH),
            dst=DstRule(parsed.is_fixed_time, dst_gap, dst_overlap),
        )
        if not _has_any_time(cron.matcher, cron.zone, cron.dst):
            raise InvalidCron(expression, "The expression must match a date, and no date matches.")
        return cron

    def next_after(self, after: datetime) -> datetime | None:
        """Return the first scheduled time after `after` in UTC, or None if no time follows."""
        if after.tzinfo is None:
            raise ValueError("The argument `after` must have a UTC offset.")
        cached = _cached_result(self.matcher, self.zone, self.dst)
        return cached.next_after(after.astimezone(UTC), self)


class _CachedResult:
    """The last result, which is correct for every argument in [since, result)."""

    __slots__ = ("_interval",)

    def __init__(self) -> None:
        self._interval: tuple[datetime, datetime | None] | None = None

    def next_after(self, after: datetime, cron: Cron) -> datetime | None:
        # One assignment replaces the interval, so concurrent threads never see half of one.
        if self._interval is not None:
            since, result = self._interval
            if since <= after and (result is None or after < result):
                return result
        result = next_time_after(after, cron.zone, rule=cron.dst, matcher=cron.matcher)
        self._interval = after, result
        return result


@lru_cache(maxsize=MAX_CACHED)
def _cached_result(_matcher: CronMatcher, _zone: ZoneInfo, _dst: DstRule) -> _CachedResult:
    return _CachedResult()


@lru_cache(maxsize=MAX_CACHED)
def _has_any_time(matcher: CronMatcher, zone: ZoneInfo, dst: DstRule) -> bool:
    return next_time_after(_CHECKED_FROM, zone, rule=dst, matcher=matcher) is not None
