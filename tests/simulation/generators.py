"""Generators of random schedules: rules, bounds, limits and policies, as users write them."""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

from tests.simulation.expected_runs import END, RESOLUTION, START, scheduled_times

ZONES: Final = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "America/Santiago",
    "America/Havana",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Antarctica/Troll",
    "Pacific/Chatham",
    "Asia/Beirut",
)
# The maximum numbers of times of a schedule. The second one exceeds one staging pass.
MAX_TIMES: Final = (500, 4_000)
SHORT_INTERVAL: Final = 21_600_000  # milliseconds

Json = dict[str, Any]


@dataclass(frozen=True)
class ScheduleGenerator:
    """A generator of one schedule, whose random source decides every choice."""

    random: Random

    def schedule(self, accepted_at: datetime) -> Json:
        """Return the field `when` and the policies."""
        when = self._when()
        times, max_times = scheduled_times(when, accepted_at), self._max_times()
        if len(times) > max_times:
            when["end"] = times[max_times - 1].isoformat()
        return {
            "when": when,
            "catch_up": self._catch_up(),
            **self._maybe(0.4, "expires_after", f"{self._log_uniform(60, 20_000)}s"),
        }

    def time(self) -> datetime:
        return START + self.random.randrange((END - START) // RESOLUTION) * RESOLUTION

    def _max_times(self) -> int:
        return self.random.choices(MAX_TIMES, weights=(9, 1))[0]

    def _when(self) -> Json:
        kinds = (self._cron, self._every, self._any_of, self._once)
        (kind,) = self.random.choices(kinds, weights=(9, 5, 4, 2))
        rule = kind()
        if kind != self._once:
            rule |= self._maybe(0.25, "times", self._log_uniform(1, 400))
        return rule | self._maybe(0.2, "jitter", f"{self._log_uniform(1, 900)}s")

    def _once(self) -> Json:
        at = START + self.random.random() * timedelta(days=300)
        text = at.isoformat(timespec="milliseconds")
        return self.random.choice(
            [{"now": True}, {"at": text}, {"after": f"{self._log_uniform(1, 10**7)}s"}],
        )

    def _every(self) -> Json:
        """Return an interval. A short one has an end, to bound the number of its times."""
        step, bounds = self._log_uniform(1_000, 3 * 10**9), self._bounds()
        if step < SHORT_INTERVAL:
            start = self.time()
            bounds["start"] = start.isoformat(timespec="milliseconds")
            max_times = self._max_times()
            count = self._log_uniform(max_times // 10, max_times)
            bounds["end"] = (start + count * step * RESOLUTION).isoformat()
        return {"every": f"{step}ms", **bounds}

    def _any_of(self) -> Json:
        kinds = (self._cron, self._every, self._once)
        members = self.random.choices(kinds, k=self._log_uniform(1, 5))
        rules = [member() for member in members]
        return {"any_of": rules, **self._bounds()}

    def _cron(self) -> Json:
        rule = {"cron": self._expression(), **self._bounds()}
        choice = self.random.choice
        rule |= self._maybe(0.2, "dst_gap", choice(["next", "skip"]))
        return rule | self._maybe(0.2, "dst_overlap", choice(["first", "second", "both"]))

    def _expression(self) -> str:
        pick, sample = self.random.choice, self.random.sample
        minutes = [str(pick(range(60))), "0", "30", "*/20", "5,35", "0-10/5"]
        hours = [str(pick(range(24))), str(pick(range(4))), "0,1,2,3", "*/6", "1-3", "9-17/4"]
        hours += ["*"] if self.random.random() < 0.2 else []
        days = [
            "*",
            "*",
            "*",
            "L",
            "*/5",
            "1,15",
            "29-31",
            ",".join(map(str, sample(range(1, 32), 3))),
        ]
        weekdays = ["*", "*", "*", "0", "1-5", "6", "0,3", "*/2"]
        day, weekday = pick(days), pick(weekdays)
        if self.random.random() < 0.1:
            day, weekday = "*", pick(["5#2", "0#5", "L5", "L0"])
        month = pick(["*", "*", "*", "3,4,9-11", "*/2"])
        if self.random.random() < 0.1:
            return "0 0 * * *"
        seconds = [pick(["15", "0,45"])] if self.random.random() < 0.1 else []
        return " ".join([*seconds, pick(minutes), pick(hours), day, month, weekday])

    def _bounds(self) -> Json:
        first, last = sorted((self.time(), self.time()))
        return {
            "timezone": self.random.choice(ZONES),
            **self._maybe(0.3, "start", self._bound(first)),
            **self._maybe(0.3, "end", self._bound(last)),
        }

    def _bound(self, time: datetime) -> str:
        is_day = self.random.random() < 0.5
        return time.date().isoformat() if is_day else time.isoformat(timespec="milliseconds")

    def _catch_up(self) -> Json:
        choice = self.random.choice
        return {
            "mode": choice(["none", "one", "all"]),
            "window": f"{self._log_uniform(600, 2 * 10**6)}s",
            "max": self._log_uniform(1, 100),
            **self._maybe(0.3, "not_after", choice(["06:00", "12:30", "18:00", "22:15"])),
        }

    def late_share(self) -> float:
        """Return the share of polls that are late, because no ticker runs."""
        return self.random.choice([0.0, 0.02, 0.1, 0.9])

    def mean_delay(self) -> int:
        """Return the mean delay of a late poll in seconds."""
        return self._log_uniform(60, 500_000)

    def _log_uniform(self, low: int, high: int) -> int:
        """Return a number whose order of magnitude is uniformly distributed."""
        return round(low * math.exp(self.random.random() * math.log(high / low)))

    def _maybe(self, chance: float, name: str, value: object) -> Json:
        return {name: value} if self.random.random() < chance else {}
