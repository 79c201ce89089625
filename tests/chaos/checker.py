"""The checker of a history: every promise to a user, compared with the calls of the target. Pure.

The method follows Jepsen's test of Chronos.
The acknowledged commands decide which runs are expected, and the record of the target shows the
runs that happened.
The ledger may excuse a run, and must agree with the target.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from tests.acceptance.recording_target import Call
from tests.acceptance.stack import run_id
from tests.chaos.attempts import check_attempts, repeats
from tests.chaos.expected_runs import expected_runs, stops
from tests.chaos.history import (
    History,
    Operation,
    Outage,
    Row,
    ScheduleHistory,
    Verb,
    duration,
    schedule_id_of,
)
from tests.chaos.result import CheckResult, Finding, FindingKind

# The latest start without a fault, on a loaded machine. An idle machine needs 0.1 s.
START_LIMIT: Final = timedelta(seconds=5)
WORK: Final = timedelta(seconds=0.02)  # for each run that had waited
STOP_GRACE: Final = timedelta(seconds=2)  # after a cancellation, for the runs in flight
LONG_OUTAGE: Final = timedelta(seconds=60)  # the catch-up policy decides about longer outages

Found = Iterator[tuple[FindingKind, str]]
WaitingWork = tuple[Outage, timedelta]  # the time for the work of all runs that had waited

ENDED: Final = {"succeeded", "dead", "unresolved", "cancelled", "expired", "skipped"}
SCHEDULE_ENDED: Final = "schedule_ended"  # the code of a put after the last run of its schedule
TOO_LATE: Final = {"not_active", "not_paused"}  # the commands came after the end of a schedule


def check_history(history: History) -> CheckResult:
    schedules = schedule_histories(history)
    waiting = [(outage, WORK * _waiting(outage, history.calls)) for outage in history.outages]
    findings = [
        Finding(kind, schedule.key, text)
        for schedule in schedules
        for kind, text in _check_schedule(schedule, waiting)
    ]
    known = {schedule.schedule_id for schedule in schedules}
    findings += [
        Finding(FindingKind.UNEXPECTED, call.schedule_id, f"{call.run_id} has no known schedule")
        for call in history.calls
        if call.schedule_id not in known
    ]
    required = {(each.key, t) for each in schedules for t in expected_runs(each).required}
    called = {(each.key, call.scheduled_for) for each in schedules for call in each.calls}
    firsts = [(each, call) for each in schedules for call in first_calls(each)]
    undisturbed = [late_by(each, call) for each, call in firsts if _is_undisturbed(each, call)]
    return CheckResult(
        findings=findings,
        expected=len(required),
        ran=len(firsts),
        excused=len(required - called),
        repeated=sum(1 for each in schedules for _ in repeats(each)),
        recovery=recovery(history, [call for _, call in firsts]),
        lateness=max(undisturbed, default=0.0),
    )


def schedule_histories(history: History) -> list[ScheduleHistory]:
    operations: dict[str, list[Operation]] = defaultdict(list)
    for operation in sorted(history.operations, key=lambda op: op.sent_at):
        operations[operation.key].append(operation)
    calls: dict[str | None, list[Call]] = defaultdict(list)
    runs: dict[str | None, dict[datetime, Row]] = defaultdict(dict)
    attempts: dict[str | None, dict[datetime, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for call in sorted(history.calls, key=lambda call: call.started_at):
        calls[call.schedule_id].append(call)
    for row in history.runs:
        runs[str(row["schedule_id"])][row["scheduled_for"]] = row
    for row in history.attempts:
        attempts[str(row["schedule_id"])][row["scheduled_for"]].append(row)
    assert all(each[0].verb is Verb.PUT for each in operations.values())
    ids = {key: schedule_id_of(each) for key, each in operations.items()}
    return [
        ScheduleHistory(
            key=key,
            operations=each,
            calls=calls[ids[key]],
            runs=runs[ids[key]],
            attempts=attempts[ids[key]],
            outages=history.outages,
        )
        for key, each in operations.items()
    ]


def first_calls(schedule: ScheduleHistory) -> list[Call]:
    """Return the first call of each run."""
    first: dict[str, Call] = {}
    for call in schedule.calls:
        first.setdefault(call.run_id, call)
    return list(first.values())


def recovery(history: History, firsts: Iterable[Call]) -> float:
    """Return the seconds from the end of a fault to the last start of a run due before it."""
    waits = [
        (call.started_at - outage.ended_at).total_seconds()
        for call in firsts
        for outage in history.outages
        if outage.started_at <= call.scheduled_for <= outage.ended_at < call.started_at
    ]
    return max(waits, default=0.0)


def _waiting(outage: Outage, calls: Iterable[Call]) -> int:
    """Return the number of runs that came due before the recovery from the fault had to end."""
    end = outage.ended_at + outage.recovery
    return sum(outage.started_at <= call.scheduled_for <= end for call in calls)


def _check_schedule(schedule: ScheduleHistory, waiting: Sequence[WaitingWork]) -> Found:
    yield from _responses(schedule)
    yield from _unexpected_or_early(schedule)
    yield from _missing(schedule)
    yield from _number_of_runs(schedule)
    yield from _after_stop(schedule)
    yield from _after_replacement(schedule)
    yield from _lateness(schedule, waiting)
    yield from check_attempts(schedule)


def _responses(schedule: ScheduleHistory) -> Found:
    for op in schedule.operations:
        if op.answered_at is None:
            yield FindingKind.UNREPORTED, f"{op.verb} of {op.sent_at} has no response"
        elif op.error_code is not None and not _is_too_late(op, schedule):
            yield FindingKind.UNREPORTED, f"{op.verb} was rejected: {op.error_code}"


def _is_too_late(op: Operation, schedule: ScheduleHistory) -> bool:
    """Return whether the rejected command came after the end of its schedule."""
    if op.verb is not Verb.PUT:
        return op.error_code in TOO_LATE
    expected = expected_runs(schedule)
    last = max(expected.required | expected.permitted, default=None)
    is_after = last is not None and op.answered_at is not None and op.answered_at >= last
    return op is not schedule.first and op.error_code == SCHEDULE_ENDED and is_after


def _unexpected_or_early(schedule: ScheduleHistory) -> Found:
    """Yield the calls of unexpected runs, and the calls before the scheduled time."""
    expected = expected_runs(schedule)
    for call in schedule.calls:
        if call.run_id != run_id(call.schedule_id, call.scheduled_for):
            text = f"{call.run_id} is not the run of {call.scheduled_for}"
            yield FindingKind.UNEXPECTED, text
        if not expected.allows(call.scheduled_for):
            yield FindingKind.UNEXPECTED, f"{call.run_id} is not an expected run"
        if call.started_at < call.scheduled_for:
            early = call.scheduled_for - call.started_at
            yield FindingKind.EARLY, f"{call.run_id} started {early} early"


def _missing(schedule: ScheduleHistory) -> Found:
    succeeded = {call.scheduled_for for call in schedule.calls if call.ok}
    for time in sorted(expected_runs(schedule).required):
        row = row_at(schedule, time)
        if row is None:
            yield FindingKind.MISSING, f"{time}: the ledger has no such run"
        elif row["state"] == "succeeded":
            if time not in succeeded:
                yield FindingKind.MISSING, f"{time}: the target saw no call of the success"
        elif not is_excused(schedule, time, row):
            yield FindingKind.MISSING, f"{time}: ended as {row['state']}, {row['reason']}"
    for time, row in schedule.runs.items():
        if row["state"] not in ENDED:
            yield FindingKind.MISSING, f"{time}: is still {row['state']}, {row['reason']}"


def row_at(schedule: ScheduleHistory, time: datetime) -> Row | None:
    """Return the row of the time. One row may cover a range of skipped times."""
    row = schedule.runs.get(time)
    if row is not None:
        return row
    ranges = (
        row
        for first, row in schedule.runs.items()
        if row["range_until"] is not None and first <= time <= row["range_until"]
    )
    return next(ranges, None)


def is_excused(schedule: ScheduleHistory, time: datetime, row: Row) -> bool:
    """Return whether a policy or a command of the user permits that the run did not succeed."""
    body, is_permitted = schedule.body, False
    match row["state"], row["reason"]:
        case "dead", _:
            is_permitted = schedule.is_always_failing
        case "skipped", "overlap":
            is_permitted = schedule.overlap == "skip"
        case "skipped", "missed":
            is_all = body.get("catch_up", {}).get("mode") == "all"
            is_permitted = not is_all and any(
                o.ended_at - o.started_at > LONG_OUTAGE for o in schedule.outages
            )
        case "skipped", "unknown_outcome":
            is_permitted = body.get("on_unknown") == "skip" and _has_lost_lease(schedule, time)
        case "cancelled", "replaced":
            is_permitted = schedule.overlap == "replace" and time < max(schedule.runs)
        case "cancelled", "cancelled" | "paused":
            is_permitted = any(_can_have_stopped(schedule, op, time) for op, _ in stops(schedule))
        case _:
            pass
    return is_permitted


def _has_lost_lease(schedule: ScheduleHistory, time: datetime) -> bool:
    return any(row["outcome"] == "lease_expired" for row in schedule.attempts.get(time, ()))


def _can_have_stopped(schedule: ScheduleHistory, stop: Operation, time: datetime) -> bool:
    """Return whether the run was not over: almost due, waiting for a retry, or late."""
    is_near = time + START_LIMIT > stop.sent_at
    was_retried = len(schedule.attempts.get(time, ())) > 0
    return is_near or was_retried or bool(schedule.outages_at(time))


def _number_of_runs(schedule: ScheduleHistory) -> Found:
    """Yield wrong numbers of runs of a schedule whose times depend on the ends of its runs."""
    if schedule.first.answered_at is None and not schedule.runs:
        return  # the schedule may not exist
    succeeded = [row for row in schedule.runs.values() if row["state"] == "succeeded"]
    if "until" in schedule.when and len(succeeded) != 1:
        kind = FindingKind.DUPLICATED if succeeded else FindingKind.MISSING
        yield kind, f"{len(succeeded)} runs succeeded"
    times = schedule.when.get("times")
    if schedule.is_sequential and times is not None and len(schedule.runs) != times:
        kind = FindingKind.MISSING if len(schedule.runs) < times else FindingKind.DUPLICATED
        yield kind, f"{len(schedule.runs)} runs"


def _after_stop(schedule: ScheduleHistory) -> Found:
    """Yield the starts after a response. A waiting retry continues during a pause."""
    for stop, resumed_at in stops(schedule):
        assert stop.answered_at is not None
        for call in schedule.calls:
            delay = call.started_at - stop.answered_at
            if delay <= timedelta(0) or (resumed_at is not None and call.started_at >= resumed_at):
                continue
            if stop.verb is Verb.PAUSE and _had_started(schedule, call, stop):
                continue
            if call.run_id not in stop.in_flight or delay > STOP_GRACE:
                text = f"{call.run_id} started {delay} after {stop.verb}"
                named = f"whose response listed {sorted(stop.in_flight)}"
                yield FindingKind.AFTER_CANCEL, f"{text}, {named}"


def _after_replacement(schedule: ScheduleHistory) -> Found:
    """Yield the starts of the old version after the response to its replacement."""
    puts = [op for op in schedule.not_rejected(Verb.PUT) if op.answered_at is not None]
    for put in puts[1:]:
        assert put.answered_at is not None
        new_version = version_in(put.body)
        for call in schedule.calls:
            delay = call.started_at - put.answered_at
            is_old = (
                new_version not in call.body
                and delay > timedelta(0)
                and not _had_started(schedule, call, put)
            )
            if is_old and (call.run_id not in put.in_flight or delay > STOP_GRACE):
                text = f"{call.run_id} of the old version started {delay} after the response"
                yield FindingKind.AFTER_CANCEL, text


def _had_started(schedule: ScheduleHistory, call: Call, change: Operation) -> bool:
    """Return whether an attempt preceded the change. Such a run keeps its version."""
    earlier = [
        row for row in schedule.attempts.get(call.scheduled_for, ()) if row["number"] < call.attempt
    ]
    assert change.answered_at is not None
    is_named = call.run_id in change.in_flight
    return any(is_named or row["finished_at"] <= change.answered_at for row in earlier)


def version_in(body: object) -> str:
    """Return the text that only this version sends to the target."""
    assert isinstance(body, dict)
    return str(body["target"]["http"]["json"]["version"])


def ready_at(schedule: ScheduleHistory, call: Call) -> datetime:
    """Return the earliest start: the scheduled time, the acceptance or the end of a pause.

    A command that was sent before the start and answered after it was accepted by the start.
    """
    jitter = duration(schedule.when.get("jitter", "0s"))
    accepted = [
        min(op.answered_at or call.started_at, call.started_at)
        for op in schedule.operations
        if op.sent_at <= call.started_at and op.verb in {Verb.PUT, Verb.RESUME, Verb.TRIGGER}
    ]
    return max([call.scheduled_for + jitter, *accepted])


def late_by(schedule: ScheduleHistory, call: Call) -> float:
    return (call.started_at - ready_at(schedule, call)).total_seconds()


def _is_undisturbed(schedule: ScheduleHistory, call: Call) -> bool:
    has_to_wait = schedule.overlap != "allow" or schedule.is_sequential
    return not has_to_wait and not schedule.outages_at(ready_at(schedule, call))


def _lateness(schedule: ScheduleHistory, waiting: Sequence[WaitingWork]) -> Found:
    if schedule.overlap != "allow" or schedule.is_sequential:
        return
    for call in first_calls(schedule):
        ready = ready_at(schedule, call)
        limit = ready + START_LIMIT
        for outage, work in waiting:  # the next fault may begin before the recovery from one
            if outage.started_at <= limit and ready <= outage.ended_at + outage.recovery:
                limit = max(limit, outage.deadline(ready) + work)
        if call.started_at > limit:
            yield FindingKind.LATE, f"{call.run_id} started {call.started_at - ready} late"
