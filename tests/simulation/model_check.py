"""The rules of the ticker on a ledger in memory, compared with an independent model of them."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

from tests.fakes.schedules import HORIZON
from tests.fakes.ticker import FakeTicker
from tests.simulation.expected_runs import END, duration, is_one_shot, zone_of

from harebell.domain.run_states import NewRun, SkippedRange
from harebell.ticker.model.planning_window import PlanningStep

MISSED_AFTER: Final = timedelta(seconds=60)  # the catch-up policy decides about later times
POLL_INTERVAL: Final = timedelta(seconds=15)  # the maximum, while a ticker runs


@dataclass
class RecordingTicker(FakeTicker):
    """A ticker that records its planning steps, and whose runs all end at once."""

    staged: list[NewRun] = field(default_factory=list)
    skipped: list[SkippedRange] = field(default_factory=list)

    def on_saved(self, steps: Sequence[PlanningStep]) -> None:
        for step in steps:
            self.staged += step.to_stage
            self.skipped += step.skipped
            for run in step.to_stage:
                self.claim(run.scheduled_for, started=True)
                self.complete(run.scheduled_for)


@dataclass(kw_only=True)
class ScheduleModel:
    """The policies, applied to the list of scheduled times. Each time is decided once."""

    schedule: dict[str, Any]
    times: list[datetime]
    decided: int = 0  # number of decided times
    runs: list[datetime] = field(default_factory=list)
    skipped: dict[datetime, str] = field(default_factory=dict)  # the reason by time

    @property
    def when(self) -> dict[str, Any]:
        when: dict[str, Any] = self.schedule["when"]
        return when

    @property
    def next_time(self) -> datetime | None:
        """The next time that the schedule requires, within the list."""
        if len(self.runs) == self.when.get("times"):
            return None
        return next(iter(self.times[self.decided : self.decided + 1]), None)

    def poll(self, now: datetime) -> None:
        """Decide about all times within the horizon."""
        first, last = self.decided, bisect_right(self.times, now + HORIZON)
        found = [] if self.next_time is None else self.times[first:last]
        missed = [] if is_one_shot(self.when) else [at for at in found if now - at > MISSED_AFTER]
        caught_up = self._catch_up(missed, now)
        self.skipped |= dict.fromkeys(missed[: len(missed) - len(caught_up)], "missed")
        self.decided += len(missed) - len(caught_up)
        for at in [*caught_up, *found[len(missed) :]]:
            if self.next_time is None:
                return
            self.decided += 1
            if self._is_expired(at, now):
                self.skipped[at] = "expired"
            else:
                self.runs.append(at)

    def _catch_up(self, missed: list[datetime], now: datetime) -> list[datetime]:
        policy = self.schedule["catch_up"]
        max_runs = {"none": 0, "one": 1, "all": policy["max"]}[policy["mode"]]
        latest = missed[-max_runs:] if max_runs else []
        return [at for at in latest if self._can_catch_up(at, now)]

    def _can_catch_up(self, missed: datetime, now: datetime) -> bool:
        policy = self.schedule["catch_up"]
        clock, zone = policy.get("not_after"), zone_of(self.when.get("timezone", "UTC"))
        if clock is not None and now >= zone.next_at_clock(clock, missed):
            return False
        return now - missed <= duration(policy["window"])

    def _is_expired(self, at: datetime, now: datetime) -> bool:
        after = self.schedule.get("expires_after")
        return after is not None and at + duration(after) <= now


@dataclass(frozen=True)
class PollTimes:
    """The times at which a ticker polls: in time, or late while no ticker runs."""

    random: Random
    late_share: float  # of the polls
    mean_delay: float  # seconds of a late poll

    def after(self, model: ScheduleModel, now: datetime) -> Iterator[datetime]:
        """Yield poll times, each before the next time that no poll has seen."""
        seen = now + HORIZON
        while (index := bisect_right(model.times, seen)) < len(model.times):
            is_late = self.random.random() < self.late_share
            delay = self.random.expovariate(1 / self.mean_delay) if is_late else 0.0
            delay += self.random.random() * POLL_INTERVAL.total_seconds()
            now = max(now, model.times[index] - HORIZON) + timedelta(seconds=delay)
            if now > END:
                return
            yield now
            seen = now + HORIZON
