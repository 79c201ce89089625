"""The mixed load of one wave, drawn from a seed: schedules of all kinds, what is done to them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

from tests.acceptance.recording_target import Target
from tests.chaos.history import Verb

Json = dict[str, Any]

ZONE: Final = "Europe/London"
LEAD: Final = 2.5  # seconds from the beginning to the first instants that are given as such
ONCE: Final = {"max_attempts": 1}
FLAKY: Final = {
    "max_attempts": 8,  # a lapse uses one up
    "backoff": {"base": "700ms", "factor": 1, "jitter": "none"},
}
SPREAD: Final = {"max_attempts": 8, "backoff": {"base": "1s", "factor": 2, "cap": "8s"}}
QUICK: Final = {
    "max_attempts": 2,
    "backoff": {"base": "300ms", "factor": 1, "jitter": "none"},
}


@dataclass(frozen=True)
class Step:
    """`at`: seconds after the beginning of the wave."""

    at: float
    verb: Verb
    key: str
    body: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Script:
    """`fixes`: what is broken is mended then."""

    steps: Sequence[Step]
    fixes: Sequence[tuple[float, str]]


@dataclass
class Drawing:
    """`span`: seconds in which commands come; instants reach a little beyond.

    `prefix`: of the keys, where several are drawn for one tenant.
    """

    dice: Random
    target: Target
    path: str
    began: datetime
    span: float
    prefix: str = ""

    def script(self, rounds: int) -> Script:
        """Each round has every kind of schedule once."""
        kinds: list[Callable[[str], Iterator[Step]]] = [
            *(self._now, self._at, self._after, self._every, self._cron, self._any_of),
            *(self._jitter, self._completion, self._until, self._flaky, self._doomed, self._slow),
            *(self._skip, self._queue, self._replace, self._cancelled, self._cancelled_once),
            *(self._paused, self._retargeted, self._triggered, self._critical, self._closed),
        ]
        steps = [
            step
            for number in range(rounds)
            for kind in kinds
            for step in kind(f"{self.prefix}{kind.__name__.strip('_')}-{number}")
        ]
        broken = [step.key for step in steps if "until-" in step.key]
        fixes = [(self.span * self.dice.uniform(0.5, 0.9), self._name(key)) for key in broken]
        return Script(sorted(steps, key=lambda step: step.at), sorted(fixes))

    def _now(self, key: str) -> Iterator[Step]:
        yield self._put(key, {"now": True})

    def _at(self, key: str) -> Iterator[Step]:
        yield self._put(key, {"at": self._instant(LEAD, self.span + 2).isoformat()})

    def _after(self, key: str) -> Iterator[Step]:
        yield self._put(key, {"after": f"{self.dice.randint(200, 6000)}ms"})

    def _every(self, key: str) -> Iterator[Step]:
        yield self._put(key, {"every": self._pace(), **self._bounds()})

    def _cron(self, key: str) -> Iterator[Step]:
        step = self.dice.choice([1, 2, 3, 5])
        when = {"cron": f"*/{step} * * * * *", "timezone": ZONE}  # row 21 changes it
        yield self._put(key, {**when, **self._bounds()})

    def _any_of(self, key: str) -> Iterator[Step]:
        bounds = self._bounds()
        rules = [{"every": pace, "start": bounds["start"]} for pace in ("2s", "3s")]
        yield self._put(key, {"any_of": rules, **bounds})

    def _jitter(self, key: str) -> Iterator[Step]:
        yield self._put(key, {"every": "2s", "jitter": "1500ms", **self._bounds()})

    def _completion(self, key: str) -> Iterator[Step]:
        when = {"every": "1s", "from": "completion", "times": self.dice.randint(2, 4)}
        yield self._put(key, when, hook={"sleep": 0.6})

    def _until(self, key: str) -> Iterator[Step]:
        when = {"every": "1s", "until": "success"}
        yield self._put(key, when, hook={"broken": self._name(key)}, retry=ONCE)

    def _flaky(self, key: str) -> Iterator[Step]:
        when = {"at": self._instant(LEAD, self.span).isoformat()}
        policy = self.dice.choice([FLAKY, SPREAD])
        yield self._put(key, when, hook={"fail": self.dice.randint(1, 3)}, retry=policy)

    def _doomed(self, key: str) -> Iterator[Step]:
        when = {"after": f"{self.dice.randint(500, 3000)}ms"}
        yield self._put(key, when, hook={"fail": 99, "status": 500}, retry=QUICK)

    def _slow(self, key: str) -> Iterator[Step]:
        when = {"every": "3s", **self._bounds()}
        yield self._put(key, when, hook={"sleep": round(self.dice.uniform(1.5, 3.5), 1)})

    def _skip(self, key: str) -> Iterator[Step]:
        yield self._taking_turns(key, "skip")

    def _queue(self, key: str) -> Iterator[Step]:
        yield self._taking_turns(key, "queue")

    def _replace(self, key: str) -> Iterator[Step]:
        yield self._taking_turns(key, "replace")

    def _cancelled(self, key: str) -> Iterator[Step]:
        put = self._put(key, {"every": self._pace(), **self._bounds()})
        yield put
        yield Step(self._between(put.at + 1, self.span), Verb.CANCEL, key)

    def _cancelled_once(self, key: str) -> Iterator[Step]:
        """Around its very instant."""
        due = self._between(self.span * 0.7, self.span)
        instant = self.began + timedelta(seconds=due)
        yield self._put(key, {"at": instant.isoformat()})
        yield Step(due + self.dice.uniform(-0.4, 0.2), Verb.CANCEL, key)

    def _paused(self, key: str) -> Iterator[Step]:
        put = self._put(key, {"every": "1s", **self._bounds()})
        yield put
        paused = self._between(put.at + 1, self.span - 2)
        yield Step(paused, Verb.PAUSE, key)
        yield Step(self._between(paused + 0.5, self.span), Verb.RESUME, key)

    def _retargeted(self, key: str) -> Iterator[Step]:
        put = self._put(key, {"every": "1s", **self._bounds()})
        yield put
        body = {**put.body, "expected_version": "any", "target": self._hook("v2")}
        body["request_id"] += "-again"
        yield Step(self._between(put.at + 1, self.span), Verb.PUT, key, body)

    def _triggered(self, key: str) -> Iterator[Step]:
        put = self._put(key, {"every": "5s", **self._bounds()})
        yield put
        for _ in range(2):
            yield Step(self._between(put.at + 1, self.span), Verb.TRIGGER, key)

    def _critical(self, key: str) -> Iterator[Step]:
        when = {"every": "2s", **self._bounds()}
        yield self._put(key, when, hook={"sleep": 0.3}, priority=10, **{"class": "critical"})

    def _closed(self, key: str) -> Iterator[Step]:
        when = {"every": "3s", **self._bounds()}
        yield self._put(key, when, hook={"sleep": 1}, on_unknown="skip", priority=2)

    def _taking_turns(self, key: str, policy: str) -> Step:
        when = {"every": "1s", **self._bounds(longest=6)}
        return self._put(key, when, hook={"sleep": 1.4}, overlap=policy)

    def _put(self, key: str, when: Json, hook: Json | None = None, **more: Any) -> Step:
        """Whatever was missed is owed: so nothing is lost but by a fault."""
        body = {
            "key": key,
            "request_id": f"{self.path}-{key}",
            "when": when,
            "target": self._hook("v1", **(hook or {})),
            "catch_up": {"mode": "all"},
            **more,
        }
        return Step(self.dice.uniform(0, self.span * 0.6), Verb.PUT, key, body)

    def _hook(self, says: str, **behaviour: Any) -> Json:
        target = self.target.http(self.path, **behaviour)
        target["http"]["json"] = {"says": says}
        return target

    def _bounds(self, longest: float = 60) -> Json:
        start = self._between(LEAD, self.span * 0.5)
        end = min(self._between(self.span * 0.7, self.span + 2), start + longest)
        moments = (self.began + timedelta(seconds=at) for at in (start, end))
        first, last = (moment.replace(microsecond=0) for moment in moments)
        return {"start": first.isoformat(), "end": last.isoformat()}

    def _instant(self, first: float, last: float) -> datetime:
        return self.began + timedelta(seconds=self._between(first, last))

    def _between(self, first: float, last: float) -> float:
        """In whole milliseconds, as instants of runs are."""
        return round(self.dice.uniform(first, max(first, last)), 3)

    def _pace(self) -> str:
        return str(self.dice.choice(["1s", "2s", "3s"]))

    def _name(self, key: str) -> str:
        return f"{self.path}-{key}"
