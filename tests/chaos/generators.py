"""Generators of the mixed load of a round: schedules of all kinds and commands for them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

from tests.acceptance.recording_target import Target
from tests.chaos.history import Verb

Json = dict[str, Any]

ZONE: Final = "Europe/London"
LEAD: Final = 2.5  # seconds from the beginning to the first explicit times
ONE_ATTEMPT: Final = {"max_attempts": 1}
CONSTANT_BACKOFF: Final = {
    "max_attempts": 8,  # an expired lease uses one attempt
    "backoff": {"base": "700ms", "factor": 1, "jitter": "none"},
}
GROWING_BACKOFF: Final = {"max_attempts": 8, "backoff": {"base": "1s", "factor": 2, "cap": "8s"}}
TWO_ATTEMPTS: Final = {
    "max_attempts": 2,
    "backoff": {"base": "300ms", "factor": 1, "jitter": "none"},
}


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command of the load. `at` is the number of seconds after the beginning of the round."""

    at: float
    verb: Verb
    key: str
    body: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Script:
    """The commands of a load, and the times at which broken targets are repaired."""

    steps: Sequence[Step]
    repairs: Sequence[tuple[float, str]]


@dataclass(kw_only=True)
class LoadGenerator:
    """A generator of schedules and commands, whose seed decides every choice.

    Scheduled times may be a little after the last command.
    """

    random: Random
    target: Target
    path: str
    started_at: datetime
    span: float  # seconds with commands
    prefix: str = ""  # of the keys, for several scripts of one tenant

    def script(self, count: int) -> Script:
        """Return the script of a load with `count` schedules of each kind."""
        kinds: list[Callable[[str], Iterator[Step]]] = [
            self._now,
            self._at,
            self._after,
            self._every,
            self._cron,
            self._any_of,
            self._jitter,
            self._completion,
            self._until,
            self._flaky,
            self._always_failing,
            self._slow,
            self._skip,
            self._queue,
            self._replace,
            self._cancelled,
            self._cancelled_once,
            self._paused,
            self._retargeted,
            self._triggered,
            self._critical,
            self._skip_unknown,
        ]
        steps = [
            step
            for number in range(count)
            for kind in kinds
            for step in kind(f"{self.prefix}{kind.__name__.strip('_')}-{number}")
        ]
        broken = [step.key for step in steps if "until-" in step.key]
        repairs = [(self.span * self.random.uniform(0.5, 0.9), self._name(key)) for key in broken]
        return Script(sorted(steps, key=lambda step: step.at), sorted(repairs))

    def _now(self, key: str) -> Iterator[Step]:
        yield self._put(key, {"now": True})

    def _at(self, key: str) -> Iterator[Step]:
        yield self._put(key, {"at": self._time(LEAD, self.span + 2).isoformat()})

    def _after(self, key: str) -> Iterator[Step]:
        yield self._put(key, {"after": f"{self.random.randint(200, 6000)}ms"})

    def _every(self, key: str) -> Iterator[Step]:
        yield self._put(key, {"every": self._interval(), **self._bounds()})

    def _cron(self, key: str) -> Iterator[Step]:
        step = self.random.choice([1, 2, 3, 5])
        when = {"cron": f"*/{step} * * * * *", "timezone": ZONE}  # row 21 changes this zone
        yield self._put(key, {**when, **self._bounds()})

    def _any_of(self, key: str) -> Iterator[Step]:
        bounds = self._bounds()
        rules = [{"every": every, "start": bounds["start"]} for every in ("2s", "3s")]
        yield self._put(key, {"any_of": rules, **bounds})

    def _jitter(self, key: str) -> Iterator[Step]:
        yield self._put(key, {"every": "2s", "jitter": "1500ms", **self._bounds()})

    def _completion(self, key: str) -> Iterator[Step]:
        when = {"every": "1s", "from": "completion", "times": self.random.randint(2, 4)}
        yield self._put(key, when, behaviour={"sleep": 0.6})

    def _until(self, key: str) -> Iterator[Step]:
        when = {"every": "1s", "until": "success"}
        yield self._put(key, when, behaviour={"broken": self._name(key)}, retry=ONE_ATTEMPT)

    def _flaky(self, key: str) -> Iterator[Step]:
        when = {"at": self._time(LEAD, self.span).isoformat()}
        retry = self.random.choice([CONSTANT_BACKOFF, GROWING_BACKOFF])
        yield self._put(key, when, behaviour={"fail": self.random.randint(1, 3)}, retry=retry)

    def _always_failing(self, key: str) -> Iterator[Step]:
        when = {"after": f"{self.random.randint(500, 3000)}ms"}
        yield self._put(key, when, behaviour={"fail": 99, "status": 500}, retry=TWO_ATTEMPTS)

    def _slow(self, key: str) -> Iterator[Step]:
        when = {"every": "3s", **self._bounds()}
        seconds = round(self.random.uniform(1.5, 3.5), 1)
        yield self._put(key, when, behaviour={"sleep": seconds})

    def _skip(self, key: str) -> Iterator[Step]:
        yield self._restricting_overlap(key, "skip")

    def _queue(self, key: str) -> Iterator[Step]:
        yield self._restricting_overlap(key, "queue")

    def _replace(self, key: str) -> Iterator[Step]:
        yield self._restricting_overlap(key, "replace")

    def _cancelled(self, key: str) -> Iterator[Step]:
        put = self._put(key, {"every": self._interval(), **self._bounds()})
        yield put
        yield Step(at=self._between(put.at + 1, self.span), verb=Verb.CANCEL, key=key)

    def _cancelled_once(self, key: str) -> Iterator[Step]:
        """Yield a one-shot schedule and its cancellation around the due time."""
        due = self._between(self.span * 0.7, self.span)
        time = self.started_at + timedelta(seconds=due)
        yield self._put(key, {"at": time.isoformat()})
        yield Step(at=due + self.random.uniform(-0.4, 0.2), verb=Verb.CANCEL, key=key)

    def _paused(self, key: str) -> Iterator[Step]:
        put = self._put(key, {"every": "1s", **self._bounds()})
        yield put
        paused = self._between(put.at + 1, self.span - 2)
        yield Step(at=paused, verb=Verb.PAUSE, key=key)
        yield Step(at=self._between(paused + 0.5, self.span), verb=Verb.RESUME, key=key)

    def _retargeted(self, key: str) -> Iterator[Step]:
        put = self._put(key, {"every": "1s", **self._bounds()})
        yield put
        body = {**put.body, "expected_version": "any", "target": self._target("v2")}
        body["request_id"] += "-again"
        yield Step(at=self._between(put.at + 1, self.span), verb=Verb.PUT, key=key, body=body)

    def _triggered(self, key: str) -> Iterator[Step]:
        put = self._put(key, {"every": "5s", **self._bounds()})
        yield put
        for _ in range(2):
            yield Step(at=self._between(put.at + 1, self.span), verb=Verb.TRIGGER, key=key)

    def _critical(self, key: str) -> Iterator[Step]:
        when = {"every": "2s", **self._bounds()}
        fields = {"class": "critical", "priority": 10}
        yield self._put(key, when, behaviour={"sleep": 0.3}, **fields)

    def _skip_unknown(self, key: str) -> Iterator[Step]:
        when = {"every": "3s", **self._bounds()}
        yield self._put(key, when, behaviour={"sleep": 1}, on_unknown="skip", priority=2)

    def _restricting_overlap(self, key: str, policy: str) -> Step:
        when = {"every": "1s", **self._bounds(longest=6)}
        return self._put(key, when, behaviour={"sleep": 1.4}, overlap=policy)

    def _put(self, key: str, when: Json, behaviour: Json | None = None, **more: Any) -> Step:
        """Return a put with catch-up of all runs, so that only a defect can lose a run."""
        body = {
            "key": key,
            "request_id": f"{self.path}-{key}",
            "when": when,
            "target": self._target("v1", **(behaviour or {})),
            "catch_up": {"mode": "all"},
            **more,
        }
        at = self.random.uniform(0, self.span * 0.6)
        return Step(at=at, verb=Verb.PUT, key=key, body=body)

    def _target(self, version: str, **behaviour: Any) -> Json:
        target = self.target.http(self.path, **behaviour)
        target["http"]["json"] = {"version": version}
        return target

    def _bounds(self, longest: float = 60) -> Json:
        start = self._between(LEAD, self.span * 0.5)
        end = min(self._between(self.span * 0.7, self.span + 2), start + longest)
        times = (self.started_at + timedelta(seconds=at) for at in (start, end))
        first, last = (time.replace(microsecond=0) for time in times)
        return {"start": first.isoformat(), "end": last.isoformat()}

    def _time(self, first: float, last: float) -> datetime:
        return self.started_at + timedelta(seconds=self._between(first, last))

    def _between(self, first: float, last: float) -> float:
        """Return a random number of seconds in whole milliseconds, as in scheduled times."""
        return round(self.random.uniform(first, max(first, last)), 3)

    def _interval(self) -> str:
        return str(self.random.choice(["1s", "2s", "3s"]))

    def _name(self, key: str) -> str:
        return f"{self.path}-{key}"
