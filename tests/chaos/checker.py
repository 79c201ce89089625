"""The judge of a history: every promise to a user, held against what the target saw. Pure.

In the manner of Jepsen's test of Chronos: what was acknowledged says which runs there must be; the
target's own record says which there were; the ledger may excuse a run, and must agree.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from tests.acceptance.recording_target import Call
from tests.acceptance.stack import run_id
from tests.chaos.attempts import judge_attempts, repeats
from tests.chaos.expected_runs import halts, owed
from tests.chaos.history import Course, History, Operation, Outage, Row, Verb, duration
from tests.chaos.result import Finding, Kind, Verdict

PROMPT: Final = timedelta(seconds=5)  # the latest start while nothing is disturbed; in life 0.1 s
WORK: Final = timedelta(seconds=0.02)  # for each run that had waited
GRACE: Final = timedelta(seconds=2)  # after a cancel, for what it named as in flight
LONG: Final = timedelta(seconds=60)  # an outage beyond which catch-up decides

Found = Iterator[tuple[Kind, str]]
Waited = tuple[Outage, timedelta]  # and the time that the work of all that had waited may take

ENDED: Final = {"succeeded", "dead", "held", "cancelled", "expired", "skipped"}
OVER: Final = {"not_active", "not_paused"}  # it came too late


def judge(history: History) -> Verdict:
    courses = courses_of(history)
    known = {course.schedule_id for course in courses}
    waited = [(outage, WORK * _waited(outage, history.calls)) for outage in history.outages]
    findings = [Finding(kind, c.key, what) for c in courses for kind, what in _judged(c, waited)]
    findings += [
        Finding(Kind.PHANTOM, call.schedule_id, f"{call.run_id} is of no schedule of ours")
        for call in history.calls
        if call.schedule_id not in known
    ]
    promised = {(c.key, t): c.runs.get(t) for c in courses for t in owed(c).must}
    firsts = [call for course in courses for call in first_calls(course)]
    called = {(course.key, call.scheduled_for) for course in courses for call in course.calls}
    calm = [late_by(c, call) for c in courses for call in first_calls(c) if _is_calm(c, call)]
    return Verdict(
        findings,
        owed=len(promised),
        ran=len(firsts),
        excused=len(promised.keys() - called),
        repeated=sum(1 for course in courses for _ in repeats(course)),
        recovery=recovery(history, firsts),
        lateness=max(calm, default=0.0),
    )


def courses_of(history: History) -> list[Course]:
    operations: dict[str, list[Operation]] = defaultdict(list)
    for operation in sorted(history.operations, key=lambda op: op.asked_at):
        operations[operation.key].append(operation)
    courses = [Course(key, each, (), {}, {}, history.outages) for key, each in operations.items()]
    assert all(course.first.verb is Verb.PUT for course in courses)
    calls: dict[str | None, list[Call]] = defaultdict(list)
    runs: dict[str | None, dict[datetime, Row]] = defaultdict(dict)
    tries: dict[str | None, dict[datetime, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for call in sorted(history.calls, key=lambda call: call.started_at):
        calls[call.schedule_id].append(call)
    for row in history.runs:
        runs[str(row["schedule_id"])][row["scheduled_for"]] = row
    for row in history.attempts:
        tries[str(row["schedule_id"])][row["scheduled_for"]].append(row)
    return [
        replace(
            c, calls=calls[c.schedule_id], runs=runs[c.schedule_id], attempts=tries[c.schedule_id]
        )
        for c in courses
    ]


def first_calls(course: Course) -> list[Call]:
    """Of each run the first."""
    first: dict[str, Call] = {}
    for call in course.calls:
        first.setdefault(call.run_id, call)
    return list(first.values())


def recovery(history: History, firsts: Iterable[Call]) -> float:
    """Seconds from a healing to the start of the last run that was due before it."""
    waited = [
        (call.started_at - outage.healed_at).total_seconds()
        for call in firsts
        for outage in history.outages
        if outage.struck_at <= call.scheduled_for <= outage.healed_at < call.started_at
    ]
    return max(waited, default=0.0)


def _waited(outage: Outage, calls: Iterable[Call]) -> int:
    """Runs that were due from its beginning until it was to be over."""
    over = outage.healed_at + outage.recovery
    return sum(outage.struck_at <= call.scheduled_for <= over for call in calls)


def _judged(course: Course, waited: Sequence[Waited]) -> Found:
    yield from _answers(course)
    yield from _misplaced(course)
    yield from _lost(course)
    yield from _number_of_runs(course)
    yield from _halted(course)
    yield from _replaced(course)
    yield from _lateness(course, waited)
    yield from judge_attempts(course)


def _answers(course: Course) -> Found:
    for op in course.operations:
        if op.notified_at is None:
            yield Kind.UNTOLD, f"{op.verb} of {op.asked_at} was never answered"
        elif op.refused is not None and (op.verb is Verb.PUT or op.refused not in OVER):
            yield Kind.UNTOLD, f"{op.verb} was refused: {op.refused}"


def _misplaced(course: Course) -> Found:
    """What ran and was not owed, or ran before its instant."""
    due = owed(course)
    for call in course.calls:
        if call.run_id != run_id(call.schedule_id, call.scheduled_for):
            yield Kind.PHANTOM, f"{call.run_id} is not the run of {call.scheduled_for}"
        if not due.allows(call.scheduled_for):
            yield Kind.PHANTOM, f"{call.run_id} was not owed"
        if call.started_at < call.scheduled_for:
            yield Kind.EARLY, f"{call.run_id} began {call.scheduled_for - call.started_at} early"


def _lost(course: Course) -> Found:
    done = {call.scheduled_for for call in course.calls if call.ok}
    for instant in sorted(owed(course).must):
        row = row_at(course, instant)
        if row is None:
            yield Kind.LOST, f"{instant}: the ledger has no such run"
        elif row["state"] == "succeeded":
            if instant not in done:
                yield Kind.LOST, f"{instant}: recorded as a success that the target never saw"
        elif not is_excused(course, instant, row):
            yield Kind.LOST, f"{instant}: ended as {row['state']}, {row['reason']}"
    for instant, row in course.runs.items():
        if row["state"] not in ENDED:
            yield Kind.LOST, f"{instant}: is still {row['state']}, {row['reason']}"


def row_at(course: Course, instant: datetime) -> Row | None:
    """A row may stand for several skipped instants."""
    row = course.runs.get(instant)
    if row is not None:
        return row
    ranges = (
        row
        for first, row in course.runs.items()
        if row["range_until"] is not None and first <= instant <= row["range_until"]
    )
    return next(ranges, None)


def is_excused(course: Course, instant: datetime, row: Row) -> bool:
    """Whether a policy or a command of the user's says that it need not succeed."""
    body, is_allowed = course.body, False
    match row["state"], row["reason"]:
        case "dead", _:
            is_allowed = course.is_doomed
        case "skipped", "overlap":
            is_allowed = course.overlap == "skip"
        case "skipped", "catch_up":
            is_all = body.get("catch_up", {}).get("mode") == "all"
            is_allowed = not is_all and any(
                o.healed_at - o.struck_at > LONG for o in course.outages
            )
        case "skipped", "unknown_outcome":
            is_allowed = body.get("on_unknown") == "skip" and _has_lapsed(course, instant)
        case "cancelled", "replaced":
            is_allowed = course.overlap == "replace" and instant < max(course.runs)
        case "cancelled", "cancelled" | "paused":
            is_allowed = any(_may_have_stopped(course, op, instant) for op, _ in halts(course))
        case _:
            pass
    return is_allowed


def _has_lapsed(course: Course, instant: datetime) -> bool:
    return any(row["outcome"] == "lease_expired" for row in course.attempts.get(instant, ()))


def _may_have_stopped(course: Course, halt: Operation, instant: datetime) -> bool:
    """It was about to be due, or to be tried again, or late because of a fault."""
    is_near = instant + PROMPT > halt.asked_at
    was_retried = len(course.attempts.get(instant, ())) > 0
    return is_near or was_retried or bool(course.disturbances(instant))


def _number_of_runs(course: Course) -> Found:
    """Of schedules whose instants depend on how runs end."""
    if course.first.notified_at is None and not course.runs:
        return  # it may never have come to be
    succeeded = [row for row in course.runs.values() if row["state"] == "succeeded"]
    if "until" in course.when and len(succeeded) != 1:
        yield Kind.LOST if not succeeded else Kind.DOUBLED, f"{len(succeeded)} runs succeeded"
    wanted = course.when.get("times")
    if course.is_sequential and wanted is not None and len(course.runs) != wanted:
        yield Kind.LOST if len(course.runs) < wanted else Kind.DOUBLED, f"{len(course.runs)} runs"


def _halted(course: Course) -> Found:
    """What waits for a retry goes on through a pause, but not behind a cancel."""
    for halt, resumed_at in halts(course):
        assert halt.notified_at is not None
        for call in course.calls:
            since = call.started_at - halt.notified_at
            if since <= timedelta(0) or (resumed_at is not None and call.started_at >= resumed_at):
                continue
            if halt.verb is Verb.PAUSE and _had_begun(course, call, halt):
                continue
            if call.run_id not in halt.in_flight or since > GRACE:
                what = f"{call.run_id} began {since} after {halt.verb}"
                yield Kind.AFTER_CANCEL, f"{what}, which named {sorted(halt.in_flight)}"


def _replaced(course: Course) -> Found:
    """What the old version did after its successor was acknowledged."""
    puts = [op for op in course.said(Verb.PUT) if op.notified_at is not None]
    for put in puts[1:]:
        assert put.notified_at is not None
        new = says(put.body)
        for call in course.calls:
            since = call.started_at - put.notified_at
            is_old = (
                new not in call.body and since > timedelta(0) and not _had_begun(course, call, put)
            )
            if is_old and (call.run_id not in put.in_flight or since > GRACE):
                yield Kind.AFTER_CANCEL, f"{call.run_id} of the old version began {since} after"


def _had_begun(course: Course, call: Call, change: Operation) -> bool:
    """A run that was attempted before a change keeps the version that it began with."""
    earlier = [
        row for row in course.attempts.get(call.scheduled_for, ()) if row["number"] < call.attempt
    ]
    assert change.notified_at is not None
    is_named = call.run_id in change.in_flight
    return any(is_named or row["finished_at"] <= change.notified_at for row in earlier)


def says(body: object) -> str:
    """What the target is told by this version and no other."""
    assert isinstance(body, dict)
    return str(body["target"]["http"]["json"]["says"])


def ready_at(course: Course, call: Call) -> datetime:
    """When it could have begun: its instant, its acceptance, the end of a pause.

    What was asked before it began and answered after it had been accepted by then at the latest.
    """
    jitter = duration(course.when.get("jitter", "0s"))
    accepted = [
        min(op.notified_at or call.started_at, call.started_at)
        for op in course.operations
        if op.asked_at <= call.started_at and op.verb in {Verb.PUT, Verb.RESUME, Verb.TRIGGER}
    ]
    return max([call.scheduled_for + jitter, *accepted])


def late_by(course: Course, call: Call) -> float:
    return (call.started_at - ready_at(course, call)).total_seconds()


def _is_calm(course: Course, call: Call) -> bool:
    waits = course.overlap != "allow" or course.is_sequential
    return not waits and not course.disturbances(ready_at(course, call))


def _lateness(course: Course, waited: Sequence[Waited]) -> Found:
    if course.overlap != "allow" or course.is_sequential:
        return
    for call in first_calls(course):
        ready = ready_at(course, call)
        limit = ready + PROMPT
        for outage, work in waited:  # one may come before another is over
            if outage.struck_at <= limit and ready <= outage.healed_at + outage.recovery:
                limit = max(limit, outage.over(ready) + work)
        if call.started_at > limit:
            yield Kind.LATE, f"{call.run_id} began {call.started_at - ready} late"
