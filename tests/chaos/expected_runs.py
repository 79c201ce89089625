"""Expected runs of a schedule, computed from its commands and responses without the product."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from tests.chaos.history import Operation, ScheduleHistory, Verb, duration

SECOND: Final = timedelta(seconds=1)
STAMP: Final = "%Y%m%dT%H%M%S%f%z"
RELATIVE: Final = frozenset({"now", "after"})  # relative to the acceptance, which a response shows
REPEATING: Final = frozenset({"every", "cron", "any_of"})


@dataclass(frozen=True, kw_only=True)
class ExpectedRuns:
    """The scheduled times of a schedule.

    A required run must run or have an excuse in the ledger.
    The commands do not decide about a permitted run.
    With `is_unbounded`, the times depend on the ends of earlier runs.
    """

    required: frozenset[datetime] = frozenset()
    permitted: frozenset[datetime] = frozenset()
    is_unbounded: bool = False

    def allows(self, time: datetime) -> bool:
        return self.is_unbounded or time in self.required or time in self.permitted


def expected_runs(schedule: ScheduleHistory) -> ExpectedRuns:
    first = schedule.first
    if first.error_code is not None:
        return ExpectedRuns()
    triggered = {time_of(op.response["run_id"]) for op in _answered(schedule, Verb.TRIGGER)}
    is_unknown = first.answered_at is None and RELATIVE & schedule.when.keys()
    if schedule.is_sequential or is_unknown:
        return ExpectedRuns(required=frozenset(triggered), is_unbounded=True)
    times = frozenset(_times(schedule.when, first))
    required = frozenset(t for t in times if _is_accepted(t, first))
    permitted = frozenset(t for t in times - required if t >= first.sent_at)
    stop = _last_stop(schedule)
    if stop is not None:
        later = frozenset(t for t in required if t > stop.sent_at)
        answered_at = stop.answered_at or datetime.max.replace(tzinfo=stop.sent_at.tzinfo)
        in_flight = {time_of(each) for each in stop.in_flight}
        permitted |= frozenset(t for t in later if t <= answered_at or t in in_flight)
        required -= later
    is_unbounded = any(op.answered_at is None for op in schedule.not_rejected(Verb.TRIGGER))
    return ExpectedRuns(
        required=required | triggered, permitted=permitted, is_unbounded=is_unbounded
    )


def time_of(run_id: str) -> datetime:
    """Return the scheduled time in a run id such as `<schedule id>@20261120T140000000Z`."""
    stamp = run_id.partition("@")[2]
    return datetime.strptime(f"{stamp[:-1]}000+0000", STAMP)  # noqa: DTZ007  # %z is in STAMP


def stops(schedule: ScheduleHistory) -> Iterator[tuple[Operation, datetime | None]]:
    """Yield the answered cancellations and pauses, each with the time of the next resume."""
    for op in schedule.operations:
        if op.verb not in {Verb.CANCEL, Verb.PAUSE} or op.answered_at is None or op.error_code:
            continue
        resumes = schedule.not_rejected(Verb.RESUME)
        resumed_at = (resume.sent_at for resume in resumes if resume.sent_at >= op.sent_at)
        yield op, min(resumed_at, default=None)


def _answered(schedule: ScheduleHistory, verb: Verb) -> list[Operation]:
    return [op for op in schedule.not_rejected(verb) if op.answered_at is not None]


def _is_accepted(time: datetime, put: Operation) -> bool:
    """Return whether the accepted schedule requires the time.

    Times before the acceptance are not required, except the one time of a one-shot schedule.
    """
    if put.answered_at is None:
        return False
    if not put.body["when"].keys() & REPEATING:
        return True
    announced = {datetime.fromisoformat(text) for text in put.response.get("next_at", ())}
    return time > put.answered_at or time in announced


def _last_stop(schedule: ScheduleHistory) -> Operation | None:
    """Return the cancellation or pause that no resume follows."""
    for op in reversed(schedule.operations):
        if op.error_code is None and op.verb in {Verb.RESUME, Verb.CANCEL, Verb.PAUSE}:
            return None if op.verb is Verb.RESUME else op
    return None


def _times(when: Mapping[str, Any], put: Operation) -> Iterator[datetime]:
    match when:
        case {"at": at}:
            yield datetime.fromisoformat(at)
        case {"any_of": rules}:
            bounds = {"start": when["start"], "end": when["end"]}
            for rule in rules:
                yield from _times({**bounds, **rule}, put)
        case {"every": every, "start": start, "end": end}:
            yield from _steps(datetime.fromisoformat(start), end, duration(every))
        case {"cron": line, "start": start, "end": end}:
            step = int(str(line).split()[0].removeprefix("*/"))
            begin = datetime.fromisoformat(start)
            seconds = _steps(begin.replace(microsecond=0), end, SECOND)
            yield from (t for t in seconds if t.second % step == 0 and t >= begin)
        case _:
            yield from (datetime.fromisoformat(text) for text in put.response["next_at"][:1])


def _steps(first: datetime, end: str, step: timedelta) -> Iterator[datetime]:
    last = datetime.fromisoformat(end)
    return (first + k * step for k in range((last - first) // step + 1))
