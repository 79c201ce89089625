"""What a schedule owes, reckoned from what was asked and told alone: the product is not asked."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from tests.chaos.history import Course, Operation, Verb, duration

SECOND: Final = timedelta(seconds=1)
STAMP: Final = "%Y%m%dT%H%M%S%f%z"
RELATIVE: Final = frozenset({"now", "after"})  # reckoned from acceptance, which the answer tells


@dataclass(frozen=True)
class Owed:
    """`must`: has to run, or to be excused on the record. `may`: runs or not, nobody can tell.

    `unbounded`: instants that depend on what became of runs before; how many is judged apart.
    """

    must: frozenset[datetime]
    may: frozenset[datetime]
    unbounded: bool = False

    def allows(self, instant: datetime) -> bool:
        return self.unbounded or instant in self.must or instant in self.may


def owed(course: Course) -> Owed:
    first = course.first
    if first.refused is not None:
        return Owed(frozenset(), frozenset())
    triggered = {instant_of(op.answer["run_id"]) for op in _answered(course, Verb.TRIGGER)}
    if course.is_sequential or (first.notified_at is None and RELATIVE & course.when.keys()):
        return Owed(frozenset(triggered), frozenset(), unbounded=True)
    grid = frozenset(_grid(course.when, first))
    accepted = frozenset(t for t in grid if _is_accepted(t, first))
    doubtful = frozenset(t for t in grid - accepted if t >= first.asked_at)
    ended = _end(course)
    if ended is not None:
        beyond = frozenset(t for t in accepted if t > ended.asked_at)
        told = ended.notified_at or datetime.max.replace(tzinfo=ended.asked_at.tzinfo)
        named = {instant_of(each) for each in ended.in_flight}
        doubtful |= frozenset(t for t in beyond if t <= told or t in named)
        accepted -= beyond
    unsure = any(op.notified_at is None for op in course.said(Verb.TRIGGER))
    return Owed(accepted | triggered, doubtful, unbounded=unsure)


def instant_of(run_id: str) -> datetime:
    """`<schedule id>@20261120T140000000Z`, read by hand."""
    stamp = run_id.partition("@")[2]
    return datetime.strptime(f"{stamp[:-1]}000+0000", STAMP)  # noqa: DTZ007  # %z is in it


def halts(course: Course) -> Iterator[tuple[Operation, datetime | None]]:
    """Cancels and pauses that were answered, and when each was perhaps over."""
    for op in course.operations:
        if op.verb not in {Verb.CANCEL, Verb.PAUSE} or op.notified_at is None or op.refused:
            continue
        resumed = (r.asked_at for r in course.said(Verb.RESUME) if r.asked_at >= op.asked_at)
        yield op, min(resumed, default=None)


def _answered(course: Course, verb: Verb) -> list[Operation]:
    return [op for op in course.said(verb) if op.notified_at is not None]


def _is_accepted(instant: datetime, put: Operation) -> bool:
    """What lies before acceptance is not owed, but for the one instant of a one-shot."""
    if put.notified_at is None:
        return False
    if not put.body["when"].keys() & {"every", "cron", "any_of"}:
        return True
    named = {datetime.fromisoformat(text) for text in put.answer.get("next_at", ())}
    return instant > put.notified_at or instant in named


def _end(course: Course) -> Operation | None:
    """What stopped it for good."""
    for op in reversed(course.operations):
        if op.refused is None and op.verb in {Verb.RESUME, Verb.CANCEL, Verb.PAUSE}:
            return None if op.verb is Verb.RESUME else op
    return None


def _grid(when: Mapping[str, Any], put: Operation) -> Iterator[datetime]:
    match when:
        case {"at": at}:
            yield datetime.fromisoformat(at)
        case {"any_of": rules}:
            bounds = {"start": when["start"], "end": when["end"]}
            for rule in rules:
                yield from _grid({**bounds, **rule}, put)
        case {"every": every, "start": start, "end": end}:
            yield from _steps(datetime.fromisoformat(start), end, duration(every))
        case {"cron": line, "start": start, "end": end}:
            step = int(str(line).split()[0].removeprefix("*/"))
            begin = datetime.fromisoformat(start)
            whole = begin.replace(microsecond=0)
            seconds = _steps(whole, end, SECOND)
            yield from (t for t in seconds if t.second % step == 0 and t >= begin)
        case _:
            yield from (datetime.fromisoformat(text) for text in put.answer["next_at"][:1])


def _steps(first: datetime, end: str, step: timedelta) -> Iterator[datetime]:
    last = datetime.fromisoformat(end)
    return (first + k * step for k in range((last - first) // step + 1))
