"""The judge of attempts: what a second one needs as its reason, and what the ledger may say."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Final

from tests.acceptance.recording_target import Call
from tests.chaos.history import Course, Row
from tests.chaos.result import Kind

REACH: Final = timedelta(seconds=45)  # from a crash to the end of the lease that it left behind
CLOCKS: Final = timedelta(milliseconds=50)  # a round trip, by which two executors tell time apart
CUT_OFF: Final = {"cancelled", "lease_expired"}  # its end may come to the target later, or never

Found = Iterator[tuple[Kind, str]]


def judge_attempts(course: Course) -> Found:
    yield from _told_twice(course)
    yield from _second_attempts(course)
    yield from _overlaps(course)
    yield from _keys(course)
    for row in course.runs.values():
        yield from _impossible(course, row)


def repeats(course: Course) -> Iterator[tuple[Call, Call]]:
    """Second attempts because nobody heard of the end of the first."""
    for before, after in consecutive(course):
        row = course.attempt_of(before)
        if row is not None and row["outcome"] == "lease_expired":
            yield before, after


def consecutive(course: Course) -> Iterator[tuple[Call, Call]]:
    """Calls of one run, by their tokens."""
    by_run: dict[str, list[Call]] = {}
    for call in sorted(course.calls, key=lambda call: (call.token, call.started_at)):
        by_run.setdefault(call.run_id, []).append(call)
    for calls in by_run.values():
        yield from pairwise(calls)


def _told_twice(course: Course) -> Found:
    for (run, token), times in Counter((c.run_id, c.token) for c in course.calls).items():
        if times > 1:
            yield Kind.DOUBLED, f"{run} was called {times} times under token {token}"
    for rows in course.attempts.values():
        won = Counter(row["replay_number"] for row in rows if row["outcome"] == "succeeded")
        if any(times > 1 for times in won.values()):
            yield Kind.DOUBLED, f"{rows[0]['scheduled_for']} succeeded twice on the record"


def _second_attempts(course: Course) -> Found:
    for before, after in consecutive(course):
        row = course.attempt_of(before)
        outcome = None if row is None else row["outcome"]
        between = f"{before.run_id}: attempt {after.attempt} after {before.attempt} ({outcome})"
        if after.started_at < before.started_at and before.token != after.token:
            yield Kind.DOUBLED, f"{between} began before it, under a higher token"
        match outcome:
            case "failed" if before.ok is not True:
                yield from _too_soon(course, before, after, between)
            case "lease_expired":
                if not _has_crashed(course, before, after):
                    yield Kind.DOUBLED, f"{between}: nothing had crashed"
            case "succeeded" if row is not None and _is_replay(course, row):
                pass
            case _:
                yield Kind.DOUBLED, f"{between}: the first one had ended, ok={before.ok}"


def _is_replay(course: Course, row: Row) -> bool:
    return bool(course.runs[row["scheduled_for"]]["replay_number"] > row["replay_number"])


def _too_soon(course: Course, before: Call, after: Call, between: str) -> Found:
    wait = course.backoff
    if wait is not None and before.finished_at is not None and after.attempt > before.attempt:
        early = before.finished_at + wait - CLOCKS - after.started_at
        if early > timedelta(0):
            yield Kind.EARLY, f"{between} began {early} before its time"


def _has_crashed(course: Course, before: Call, after: Call) -> bool:
    return any(
        outage.lapses
        and outage.struck_at - REACH <= after.started_at
        and before.started_at <= outage.healed_at + REACH
        for outage in course.outages
    )


def _overlaps(course: Course) -> Found:
    """Of one run always, of one schedule where its policy says so."""
    one_by_one = course.overlap != "allow" or course.is_sequential
    begun = sorted(course.calls, key=lambda call: call.started_at)
    groups = [begun] if one_by_one else [[c for c in begun if c.run_id == r] for r in _runs(begun)]
    for before, after in (pair for group in groups for pair in pairwise(group)):
        row = course.attempt_of(before)
        if row is not None and row["outcome"] in CUT_OFF:
            continue
        if before.finished_at is None or after.started_at < before.finished_at:
            yield Kind.CONCURRENT, f"{after.run_id} began while {before.run_id} was running"


def _runs(calls: list[Call]) -> list[str]:
    return sorted({call.run_id for call in calls})


def _keys(course: Course) -> Found:
    for call in course.calls:
        if call.idempotency_key != call.run_id:
            yield Kind.RECORD, f"{call.run_id} came under the key {call.idempotency_key}"


def _impossible(course: Course, row: Row) -> Found:
    """Combinations of columns that no rule produces."""
    name, state = row["scheduled_for"], row["state"]
    is_over = state not in {"staged", "running", "retrying", "held"}
    rows = course.attempts.get(name, ())
    numbers = [each["number"] for each in rows if each["replay_number"] == row["replay_number"]]
    if is_over != (row["finished_at"] is not None):
        yield Kind.RECORD, f"{name} is {state} and ended at {row['finished_at']}"
    if state == "running" and row["lease_holder"] is None:
        yield Kind.RECORD, f"{name} runs and nobody holds it"
    if state in {"succeeded", "dead"} and numbers != list(range(1, row["attempt"] + 1)):
        yield Kind.RECORD, f"{name} is {state} after {row['attempt']} attempts: {numbers}"
    if row["attempt"] > course.max_attempts:
        yield Kind.RECORD, f"{name} was attempted {row['attempt']} times"
    if state == "succeeded" and (not rows or rows[-1]["outcome"] != "succeeded"):
        yield Kind.RECORD, f"{name} succeeded, its last attempt did not"
