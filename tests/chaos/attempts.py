"""Checks of attempts: the reason of each second attempt, and the rows that the ledger permits."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from typing import Final

from tests.acceptance.recording_target import Call
from tests.chaos.history import Row, ScheduleHistory
from tests.chaos.result import FindingKind

# From a crash to the end of the lease of the crashed executor.
LEASE_END: Final = timedelta(seconds=45)
CLOCK_TOLERANCE: Final = timedelta(milliseconds=50)  # a round trip between two executors
# The target may see the end of such an attempt later, or never.
UNSEEN_ENDS: Final = {"cancelled", "lease_expired"}
UNFINISHED: Final = {"staged", "running", "retrying", "unresolved"}

Found = Iterator[tuple[FindingKind, str]]


def check_attempts(schedule: ScheduleHistory) -> Found:
    """Yield the broken promises about attempts."""
    yield from _repeated_tokens(schedule)
    yield from _repeated_successes(schedule)
    yield from _second_attempts(schedule)
    yield from _concurrent_attempts(schedule)
    yield from _wrong_keys(schedule)
    for row in schedule.runs.values():
        yield from _inconsistent_columns(schedule, row)


def repeats(schedule: ScheduleHistory) -> Iterator[tuple[Call, Call]]:
    """Yield the pairs of attempts whose first one ended with its lease."""
    for first, second in consecutive(schedule):
        row = schedule.attempt_of(first)
        if row is not None and row["outcome"] == "lease_expired":
            yield first, second


def consecutive(schedule: ScheduleHistory) -> Iterator[tuple[Call, Call]]:
    """Yield the pairs of consecutive calls of one run, ordered by fencing token."""
    by_run: dict[str, list[Call]] = {}
    for call in sorted(schedule.calls, key=lambda call: (call.token, call.started_at)):
        by_run.setdefault(call.run_id, []).append(call)
    for calls in by_run.values():
        yield from pairwise(calls)


def _repeated_tokens(schedule: ScheduleHistory) -> Found:
    counts = Counter((call.run_id, call.token) for call in schedule.calls)
    for (run, token), count in counts.items():
        if count > 1:
            yield FindingKind.DUPLICATED, f"{run} was called {count} times under token {token}"


def _repeated_successes(schedule: ScheduleHistory) -> Found:
    for rows in schedule.attempts.values():
        successes = Counter(row["replay_number"] for row in rows if row["outcome"] == "succeeded")
        if any(count > 1 for count in successes.values()):
            yield FindingKind.DUPLICATED, f"{rows[0]['scheduled_for']} has two recorded successes"


def _second_attempts(schedule: ScheduleHistory) -> Found:
    for first, second in consecutive(schedule):
        row = schedule.attempt_of(first)
        outcome = None if row is None else row["outcome"]
        pair = f"{first.run_id}: attempt {second.attempt} after {first.attempt} ({outcome})"
        if second.started_at < first.started_at and first.token != second.token:
            yield FindingKind.DUPLICATED, f"{pair} started first, with a higher token"
        match outcome:
            case "failed" if first.ok is not True:
                yield from _early_retry(schedule, first, second, pair)
            case "lease_expired":
                if not _can_explain(schedule, first, second):
                    yield FindingKind.DUPLICATED, f"{pair}: no executor had crashed"
            case "succeeded" if row is not None and _is_replayed(schedule, row):
                pass
            case _:
                yield FindingKind.DUPLICATED, f"{pair}: the first one had ended, ok={first.ok}"


def _is_replayed(schedule: ScheduleHistory, row: Row) -> bool:
    return bool(schedule.runs[row["scheduled_for"]]["replay_number"] > row["replay_number"])


def _early_retry(schedule: ScheduleHistory, first: Call, second: Call, pair: str) -> Found:
    wait = schedule.backoff
    if wait is not None and first.finished_at is not None and second.attempt > first.attempt:
        early = first.finished_at + wait - CLOCK_TOLERANCE - second.started_at
        if early > timedelta(0):
            yield FindingKind.EARLY, f"{pair} started {early} before the end of its backoff"


def _can_explain(schedule: ScheduleHistory, first: Call, second: Call) -> bool:
    """Return whether a fault can have separated the effect of the first call from its record."""
    return any(
        outage.can_expire_leases
        and outage.started_at - LEASE_END <= second.started_at
        and first.started_at <= outage.ended_at + LEASE_END
        for outage in schedule.outages
    )


def _concurrent_attempts(schedule: ScheduleHistory) -> Found:
    """Yield the overlaps of one run, and of the runs of a schedule that restricts overlap."""
    restricts_overlap = schedule.overlap != "allow" or schedule.is_sequential
    calls = sorted(schedule.calls, key=lambda call: call.started_at)
    groups = [calls] if restricts_overlap else _by_run(calls)
    for first, second in (pair for group in groups for pair in pairwise(group)):
        row = schedule.attempt_of(first)
        if row is not None and row["outcome"] in UNSEEN_ENDS:
            continue
        if first.finished_at is None or second.started_at < first.finished_at:
            yield FindingKind.CONCURRENT, f"{second.run_id} started while {first.run_id} ran"


def _by_run(calls: list[Call]) -> list[list[Call]]:
    runs = sorted({call.run_id for call in calls})
    return [[call for call in calls if call.run_id == run] for run in runs]


def _wrong_keys(schedule: ScheduleHistory) -> Found:
    for call in schedule.calls:
        if call.idempotency_key != call.run_id:
            text = f"{call.run_id} has the idempotency key {call.idempotency_key}"
            yield FindingKind.INCONSISTENT, text


def _inconsistent_columns(schedule: ScheduleHistory, row: Row) -> Found:
    """Yield the combinations of columns that no rule produces."""
    time, state = row["scheduled_for"], row["state"]
    is_finished = state not in UNFINISHED
    rows = schedule.attempts.get(time, ())
    numbers = [each["number"] for each in rows if each["replay_number"] == row["replay_number"]]
    if is_finished != (row["finished_at"] is not None):
        yield FindingKind.INCONSISTENT, f"{time} is {state} and ended at {row['finished_at']}"
    if state == "running" and row["lease_holder"] is None:
        yield FindingKind.INCONSISTENT, f"{time} is running without a lease holder"
    if state in {"succeeded", "dead"} and numbers != list(range(1, row["attempt"] + 1)):
        text = f"{time} is {state} after {row['attempt']} attempts: {numbers}"
        yield FindingKind.INCONSISTENT, text
    if row["attempt"] > schedule.max_attempts:
        yield FindingKind.INCONSISTENT, f"{time} had {row['attempt']} attempts"
    if state == "succeeded" and (not rows or rows[-1]["outcome"] != "succeeded"):
        yield FindingKind.INCONSISTENT, f"{time} succeeded, and its last attempt did not"
