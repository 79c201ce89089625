"""`Cron`: the parsed rule that the rest of Harebell holds, and what it remembers of its answers."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Self
from uuid import UUID
from zoneinfo import ZoneInfo

from harebell.contract.errors import InvalidCron
from harebell.contract.when import DstGap, DstOverlap
from harebell.domain.cron.matcher import CronMatcher
from harebell.domain.cron.next_time import DstRule, next_time_after
from harebell.domain.cron.parser import parse
from harebell.domain.cron.timezones import load_timezone

INTERVAL_MEMO: Final = 16_384  # rules
# "Never" is judged from a fixed day: a rule is refused or taken for what it is, not for when.
_JUDGED_FROM: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression in a time zone. Holding one means it has been checked."""

    expression: str
    zone: ZoneInfo
    calendar: CronMatcher
    dst: DstRule

    @classmethod
    def parse(
        cls,
        expression: str,
        zone: str = "UTC",
        *,
        hash_id: UUID | None = None,
        dst_gap: DstGap | None = None,
        dst_overlap: DstOverlap | None = None,
    ) -> Self:
        """Raise InvalidCron or UnknownTimezone. `hash_id` (of the schedule) decides `H`."""
        reading = parse(expression, hash_id)
        cron = cls(
            expression,
            load_timezone(zone),
            CronMatcher(reading.text),
            DstRule(reading.fixed, dst_gap, dst_overlap),
        )
        if not _ever_runs(cron.calendar, cron.zone, cron.dst):
            raise InvalidCron(expression, "never runs: no date matches")
        return cron

    def next_after(self, moment: datetime) -> datetime | None:
        """Return the first instant strictly after `moment`, in UTC; None if there is none."""
        if moment.tzinfo is None:
            raise ValueError("a moment without an offset is not an instant")
        known = _known(self.calendar, self.zone, self.dst)
        return known.next_after(moment.astimezone(UTC), self)


class _Known:
    """The last answer, which is right for every moment in [since, answer)."""

    __slots__ = ("_interval",)

    def __init__(self) -> None:
        self._interval: tuple[datetime, datetime | None] | None = None

    def next_after(self, moment: datetime, cron: Cron) -> datetime | None:
        # Read and replaced whole, so that threads see one interval or the other.
        if self._interval is not None:
            since, answer = self._interval
            if since <= moment and (answer is None or moment < answer):
                return answer
        answer = next_time_after(moment, cron.zone, cron.dst, cron.calendar)
        self._interval = moment, answer
        return answer


@lru_cache(maxsize=INTERVAL_MEMO)
def _known(_calendar: CronMatcher, _zone: ZoneInfo, _dst: DstRule) -> _Known:
    return _Known()


@lru_cache(maxsize=INTERVAL_MEMO)
def _ever_runs(calendar: CronMatcher, zone: ZoneInfo, dst: DstRule) -> bool:
    return next_time_after(_JUDGED_FROM, zone, dst, calendar) is not None
