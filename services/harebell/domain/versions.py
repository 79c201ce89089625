"""TODO: describe this module."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import islice
from uuid import UUID
from zoneinfo import ZoneInfo

from harebell.contract.schedule import SchedulingPolicy
from harebell.contract.types import EARLIEST
from harebell.contract.when import Every, Recurring
from harebell.domain.planner import remaining_runs
from harebell.domain.recurrence import (
    RESOLUTION,
    AfterCompletion,
    Once,
    Recurrence,
    recurrence_of,
)


@dataclass(frozen=True)
class VersionWindow:
    """A version, and the stretch of time it is in force: up to `until`, which is the next one's."""

    schedule_id: UUID
    terms: SchedulingPolicy
    since: datetime
    until: datetime | None = None
    number: int = 1
    anchor: datetime | None = None  # relative times are reckoned from here; None: from `since`
    dispatched: int = 0  # runs that count towards `times`
    counted_to: datetime = EARLIEST  # instants up to here are among them, or will not run

    @cached_property
    def table(self) -> Recurrence:
        return recurrence_of(self.terms, self.schedule_id, self.reckoned_from)

    @property
    def reckoned_from(self) -> datetime:
        return self.anchor or self.since

    @property
    def zone(self) -> ZoneInfo:
        when = self.terms.when
        return ZoneInfo(when.timezone if isinstance(when, Recurring) else "UTC")

    def next_after(self, moment: datetime) -> datetime | None:
        """The first instant that this version owes after `moment`."""
        found = self.table.next_after(max(moment, self._beginning))
        ended = found is not None and self.until is not None and found >= self.until
        return None if ended else found

    def last_time_until(self, moment: datetime) -> datetime | None:
        """The last instant up to `moment`, by halving: there is no way to ask backward."""
        low, high = self._beginning, moment
        if isinstance(self.table, AfterCompletion) or not self._has_one(low, high):
            return None
        while high - low > RESOLUTION:
            middle = low + (high - low) // 2
            low, high = (middle, high) if self._has_one(middle, moment) else (low, middle)
        return self.next_after(low)

    def following(self, before: "VersionWindow | None") -> "VersionWindow":
        if before is None or before.reckoned_from != self.reckoned_from:
            return self
        return replace(self, dispatched=max(before.dispatched, self.dispatched))

    def having_run(
        self, instants: Sequence[datetime], skips: Collection[datetime]
    ) -> "VersionWindow":
        counted = sum(each > self.counted_to and each not in skips for each in instants)
        return replace(self, dispatched=self.dispatched + counted)

    def instants(
        self, after: datetime, count: int, skips: Collection[datetime] = ()
    ) -> list[datetime]:
        """The next `count` instants, skipped ones among them; `times` counts only the others."""
        return list(islice(_instants(self, after, skips), count))

    def includes(self, instant: datetime) -> bool:
        return self.next_after(instant - RESOLUTION) == instant

    def _has_one(self, after: datetime, until: datetime) -> bool:
        found = self.next_after(after)
        return found is not None and found <= until

    @property
    def _beginning(self) -> datetime:
        """An instant of a one-shot may lie before its acceptance."""
        at = self.table.at if isinstance(self.table, Once) else self.since
        return min(at, self.since) - RESOLUTION


def _instants(
    edition: VersionWindow, after: datetime, skips: Collection[datetime]
) -> Iterator[datetime]:
    left = remaining_runs(edition.terms, edition.dispatched)
    instant = edition.next_after(after)
    while instant is not None and (left != 0 or instant <= edition.counted_to):
        if left is not None and instant > edition.counted_to and instant not in skips:
            left -= 1
        yield instant
        instant = edition.next_after(_behind(edition, instant))


def _behind(edition: VersionWindow, instant: datetime) -> datetime:
    """From completion: as if the run took no time."""
    when = edition.terms.when
    if isinstance(when, Every) and isinstance(edition.table, AfterCompletion):
        return instant + when.every - RESOLUTION
    return instant
