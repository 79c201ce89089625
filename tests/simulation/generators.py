"""Schedules as anybody might write them, drawn at random: rules, bounds, limits and policies."""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

from tests.simulation.expected_runs import END, START, TICK, instants

ZONES: Final = (
    *("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"),
    *("America/Santiago", "America/Havana", "Africa/Cairo", "Africa/Casablanca"),
    *("Antarctica/Troll", "Pacific/Chatham", "Asia/Beirut"),
)
MOST: Final = (500, 4_000)  # instants of one schedule; an `end` sees to it
QUICK: Final = 21_600_000  # ms

Json = dict[str, Any]


@dataclass(frozen=True)
class Drawing:
    """Everything random about one schedule."""

    dice: Random

    def schedule(self, accepted_at: datetime) -> Json:
        """`when` and the policies."""
        when = self._when()
        owed, most = instants(when, accepted_at), self._most()
        if len(owed) > most:
            when["end"] = owed[most - 1].isoformat()
        return {
            "when": when,
            "catch_up": self._catch_up(),
            **self._maybe(0.4, "expires_after", f"{self._log(60, 20_000)}s"),
        }

    def moment(self) -> datetime:
        return START + self.dice.randrange((END - START) // TICK) * TICK

    def _most(self) -> int:
        """Now and then more than one pass looks at."""
        return self.dice.choices(MOST, weights=(9, 1))[0]

    def _when(self) -> Json:
        kinds = (self._cron, self._every, self._any_of, self._once)
        (kind,) = self.dice.choices(kinds, weights=(9, 5, 4, 2))
        rule = kind()
        if kind != self._once:
            rule |= self._maybe(0.25, "times", self._log(1, 400))
        return rule | self._maybe(0.2, "jitter", f"{self._log(1, 900)}s")

    def _once(self) -> Json:
        at = START + self.dice.random() * timedelta(days=300)
        text = at.isoformat(timespec="milliseconds")
        return self.dice.choice(
            [{"now": True}, {"at": text}, {"after": f"{self._log(1, 10**7)}s"}],
        )

    def _every(self) -> Json:
        """A quick one has an end, as no year has room for it."""
        step, bounds = self._log(1_000, 3 * 10**9), self._bounds()
        if step < QUICK:
            start = self.moment()
            bounds["start"] = start.isoformat(timespec="milliseconds")
            most = self._most()
            bounds["end"] = (start + self._log(most // 10, most) * step * TICK).isoformat()
        return {"every": f"{step}ms", **bounds}

    def _any_of(self) -> Json:
        members = self.dice.choices((self._cron, self._every, self._once), k=self._log(1, 5))
        rules = [member() for member in members]
        return {"any_of": rules, **self._bounds()}

    def _cron(self) -> Json:
        rule = {"cron": self._expression(), **self._bounds()}
        rule |= self._maybe(0.2, "dst_gap", self.dice.choice(["next", "skip"]))
        return rule | self._maybe(0.2, "dst_overlap", self.dice.choice(["first", "second", "both"]))

    def _expression(self) -> str:
        pick, few = self.dice.choice, self.dice.sample
        minutes = [str(pick(range(60))), "0", "30", "*/20", "5,35", "0-10/5"]
        hours = [str(pick(range(24))), str(pick(range(4))), "0,1,2,3", "*/6", "1-3", "9-17/4"]
        hours += ["*"] if self.dice.random() < 0.2 else []
        days = [
            "*",
            "*",
            "*",
            "L",
            "*/5",
            "1,15",
            "29-31",
            ",".join(map(str, few(range(1, 32), 3))),
        ]
        weekdays = ["*", "*", "*", "0", "1-5", "6", "0,3", "*/2"]
        day, weekday = pick(days), pick(weekdays)
        if self.dice.random() < 0.1:
            day, weekday = "*", pick(["5#2", "0#5", "L5", "L0"])
        month = pick(["*", "*", "*", "3,4,9-11", "*/2"])
        if self.dice.random() < 0.1:
            return "0 0 * * *"
        seconds = [pick(["15", "0,45"])] if self.dice.random() < 0.1 else []
        return " ".join([*seconds, pick(minutes), pick(hours), day, month, weekday])

    def _bounds(self) -> Json:
        first, last = sorted((self.moment(), self.moment()))
        return {
            "timezone": self.dice.choice(ZONES),
            **self._maybe(0.3, "start", self._bound(first)),
            **self._maybe(0.3, "end", self._bound(last)),
        }

    def _bound(self, moment: datetime) -> str:
        is_day = self.dice.random() < 0.5
        return moment.date().isoformat() if is_day else moment.isoformat(timespec="milliseconds")

    def _catch_up(self) -> Json:
        return {
            "mode": self.dice.choice(["none", "one", "all"]),
            "window": f"{self._log(600, 2 * 10**6)}s",
            "max": self._log(1, 100),
            **self._maybe(0.3, "not_after", self.dice.choice(["06:00", "12:30", "18:00", "22:15"])),
        }

    def outages(self) -> Json:
        """How often tickers are away, and for how long on average."""
        return {
            "share": self.dice.choice([0.0, 0.02, 0.1, 0.9]),
            "seconds": self._log(60, 500_000),
        }

    def _log(self, least: int, most: int) -> int:
        """Small and large ones alike."""
        return round(least * math.exp(self.dice.random() * math.log(most / least)))

    def _maybe(self, chance: float, name: str, value: object) -> Json:
        return {name: value} if self.dice.random() < chance else {}
