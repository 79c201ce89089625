"""A schedule's life twice: by the ticker's rules on a ledger in memory, and by a model of them."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

from tests.fakes.schedules import HORIZON
from tests.fakes.ticker import FakeTicker
from tests.simulation.expected_runs import END, duration, zone_of

from harebell.domain.run_states import NewRun, SkippedRange
from harebell.ticker.model.planning import PlanningStep

LATE: Final = timedelta(seconds=60)  # from then on, catch-up decides
PASSES: Final = timedelta(seconds=15)  # between two looks of a ticker that is well


@dataclass
class Lived(FakeTicker):
    """What tickers do; executors end every run at once."""

    runs: list[NewRun] = field(default_factory=list)
    unrun: list[SkippedRange] = field(default_factory=list)

    def on_saved(self, steps: Sequence[PlanningStep]) -> None:
        for step in steps:
            self.runs += step.to_stage
            self.unrun += step.skipped
            for run in step.to_stage:
                self.claim(run.scheduled_for, started=True)
                self.complete(run.scheduled_for)


@dataclass
class Model:
    """Policies applied to the list of instants, look by look. Each instant is decided once."""

    schedule: dict[str, Any]
    instants: list[datetime]
    decided: int = 0  # of the instants
    runs: list[datetime] = field(default_factory=list)
    unrun: dict[datetime, str] = field(default_factory=dict)  # and why

    @property
    def when(self) -> dict[str, Any]:
        when: dict[str, Any] = self.schedule["when"]
        return when

    @property
    def following(self) -> datetime | None:
        """The next instant that it owes, as far as the list goes."""
        if len(self.runs) == self.when.get("times"):
            return None
        return next(iter(self.instants[self.decided : self.decided + 1]), None)

    def look(self, now: datetime) -> None:
        first, last = self.decided, bisect_right(self.instants, now + HORIZON)
        found = [] if self.following is None else self.instants[first:last]
        is_once = bool(self.when.keys() & {"now", "at", "after"})
        missed = [] if is_once else [at for at in found if now - at > LATE]
        made_up = self._made_up(missed, now)
        self.unrun |= dict.fromkeys(missed[: len(missed) - len(made_up)], "missed")
        self.decided += len(missed) - len(made_up)
        for at in [*made_up, *found[len(missed) :]]:
            if self.following is None:
                return
            self.decided += 1
            if self._is_expired(at, now):
                self.unrun[at] = "expired"
            else:
                self.runs.append(at)

    def _made_up(self, missed: list[datetime], now: datetime) -> list[datetime]:
        policy = self.schedule["catch_up"]
        most = {"none": 0, "one": 1, "all": policy["max"]}[policy["mode"]]
        latest = missed[-most:] if most else []
        return [at for at in latest if self._may_be_made_up(at, now)]

    def _may_be_made_up(self, missed: datetime, now: datetime) -> bool:
        policy = self.schedule["catch_up"]
        clock, zone = policy.get("not_after"), zone_of(self.when.get("timezone", "UTC"))
        if clock is not None and now >= zone.next_showing(clock, missed):
            return False
        return now - missed <= duration(policy["window"])

    def _is_expired(self, at: datetime, now: datetime) -> bool:
        after = self.schedule.get("expires_after")
        return after is not None and at + duration(after) <= now


@dataclass(frozen=True)
class Tickers:
    """When they look: in time, unless all of them are away."""

    dice: Random
    away: float  # the share of looks that are late
    on_average: float  # seconds, then

    def looks(self, model: Model, now: datetime) -> Iterator[datetime]:
        """Each before the next instant that nobody has looked at would be due."""
        seen = now + HORIZON
        while (following := bisect_right(model.instants, seen)) < len(model.instants):
            is_away = self.dice.random() < self.away
            late = self.dice.expovariate(1 / self.on_average) if is_away else 0.0
            late += self.dice.random() * PASSES.total_seconds()
            now = max(now, model.instants[following] - HORIZON) + timedelta(seconds=late)
            if now > END:
                return
            yield now
            seen = now + HORIZON
