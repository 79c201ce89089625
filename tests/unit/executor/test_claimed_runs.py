"""Claimed runs and what becomes of them, as values."""

from datetime import datetime, timedelta

import pytest
from tests.fakes.tickets import NINE, after, ticket

from harebell.contract.policy import RecoveryClass, RetryPolicy
from harebell.domain.retry import ATTEMPTS_EXHAUSTED, Dead, Decision, Expired, Failure, Retry
from harebell.domain.run_states import RunState
from harebell.executor.model.claimed_run import FRESH, ClaimedRun, lease_seconds
from harebell.executor.model.completion import completion_of, decide_next
from harebell.executor.model.start_queue import (
    BATCHED_START_THRESHOLD,
    COARSEST,
    GRAIN,
    StartQueue,
    min_sleep,
)
from harebell.executor.model.throughput import MAX_LATE, MAX_UNSTARTED, ThroughputEstimate
from harebell.executor.targets.attempt import Outcome, Success
from harebell.messaging.topology.delay_queues import LONGEST_DELAY

FAILED = Failure("http_error", "HTTP 500", http_status=500)


def claimed(
    number: int = 0, due_at: datetime = NINE, *, priority: int = 5, attempt: int = 1, seq: int = 1
) -> ClaimedRun:
    of = ticket(number, due_at, priority=priority, seq=seq)
    return ClaimedRun(of, seq + 1, attempt, 15.0, 100.0, NINE)


def drain(heap: StartQueue) -> list[ClaimedRun]:
    return [heap.pop() for _ in range(len(heap))]


@pytest.mark.requirement("S43")
def test_what_is_due_first_starts_first_and_of_those_the_most_urgent() -> None:
    late, low = claimed(1, after(1), priority=10), claimed(2, priority=1)
    first, second, high = claimed(3), claimed(4), claimed(5, priority=9)
    heap = StartQueue()
    for run in (late, low, first, second, high):
        heap.push(run)

    assert drain(heap) == [high, first, second, low, late]


@pytest.mark.requirement("S47")
def test_the_heap_tells_when_the_next_is_due() -> None:
    heap = StartQueue()
    nothing = heap.next_due()
    heap.push(claimed(1, after(2)))
    heap.push(claimed(2, after(1)))

    assert (nothing, heap.next_due()) == (None, after(1))


@pytest.mark.requirement("S33")
def test_what_is_taken_out_never_starts() -> None:
    runs = [claimed(number, after(number)) for number in range(4)]
    heap = StartQueue()
    for run in runs:
        heap.push(run)

    taken = heap.remove({runs[0].key, runs[2].key, claimed(99).key})

    assert taken == [runs[0], runs[2]]
    assert heap.waiting() == [runs[1], runs[3]]
    assert (len(heap), heap.next_due()) == (2, after(1))


@pytest.mark.requirement("S14")
def test_a_run_that_was_taken_out_and_is_claimed_again_starts_by_its_new_ticket() -> None:
    old, new = claimed(1, priority=5), claimed(1, priority=9, seq=3)
    heap = StartQueue()
    heap.push(old)

    heap.remove({old.key})
    heap.push(new)

    assert drain(heap) == [new]


@pytest.mark.requirement("S67", "S68")
@pytest.mark.parametrize(
    ("seconds", "unstarted", "running", "free"),
    [
        (0.5, 0, [], 40),
        (0.5, 60, [], 0),
        (0.1, 0, [], 200),
        (0.1, 100, [], 100),
        (0.1, 101, [], 0),  # what waits is enough for now
        (30.0, 0, [], 40),
        (0.0, 0, [], MAX_UNSTARTED),
        (0.0, 0, [9.0] * 39, MAX_UNSTARTED),  # a slot is free
        (0.0, 0, [0.2] * 40, 100),
        (0.0, 0, [9.0] * 40, 40),  # they are slower than any before
    ],
)
def test_a_lane_claims_what_it_can_start_soon_and_never_less_than_its_slots(
    seconds: float, unstarted: int, running: list[float], free: int
) -> None:
    assert ThroughputEstimate(40, seconds).capacity(unstarted, running) == free


@pytest.mark.parametrize(
    ("seconds", "unstarted", "free"),
    [(0.0, 0, MAX_LATE), (0.0, MAX_LATE // 2 + 1, 0), (0.1, 0, 200), (30.0, 0, 40)],
)
def test_while_some_are_late_little_more_is_claimed(
    seconds: float, unstarted: int, free: int
) -> None:
    assert ThroughputEstimate(40, seconds).capacity(unstarted, [], is_late=True) == free


def test_how_long_attempts_take_follows_them_within_a_few_dozen() -> None:
    pace = ThroughputEstimate(40)
    for _ in range(100):
        pace.record(0.001)
    quick = pace.capacity(0, [])
    for _ in range(100):
        pace.record(5)

    assert quick > 400
    assert pace.capacity(0, []) == 40


@pytest.mark.requirement("S22", "S94")
@pytest.mark.parametrize(("class_", "seconds"), [("normal", 15), ("critical", 5)])
def test_critical_runs_have_the_shorter_lease(class_: str, seconds: int) -> None:
    plain = ticket()
    work = plain.run_spec.model_copy(update={"class_": RecoveryClass(class_)})

    lease = lease_seconds(plain.model_copy(update={"run_spec": work}), normal=15, critical=5)

    assert lease == seconds


@pytest.mark.parametrize(
    ("lease", "waited", "fresh"),
    [(15, FRESH, True), (15, FRESH + 0.01, False), (2, 1, True), (2, 1.01, False)],
)
def test_a_lease_is_renewed_before_a_start_when_it_is_no_longer_fresh(
    lease: float, waited: float, *, fresh: bool
) -> None:
    run = ClaimedRun(ticket(), 2, 1, lease, 100.0)

    assert run.is_fresh(100 + waited) is fresh
    assert run.lease_ends == 100 + lease


@pytest.mark.parametrize(
    ("outcome", "attempt", "expected"),
    [
        (Success(200, "ok"), 5, type(None)),
        (FAILED, 1, Retry),
        (FAILED, 5, Dead),
        (Failure("http_status", "HTTP 404", retryable=False), 1, Dead),
    ],
)
def test_what_an_attempt_came_to_decides_what_comes_next(
    outcome: Outcome, attempt: int, expected: type
) -> None:
    decided = decide_next(claimed(attempt=attempt), outcome, NINE, 0.5)

    assert type(decided) is expected


@pytest.mark.requirement("S106")
def test_the_attempt_number_is_the_ledgers_not_the_tickets() -> None:
    run = claimed(attempt=3)
    policy = RetryPolicy(max_attempts=3)
    work = run.ticket.run_spec.model_copy(update={"retry": policy})
    run.ticket = run.ticket.model_copy(update={"run_spec": work})

    assert decide_next(run, FAILED, NINE, 0) == Dead(ATTEMPTS_EXHAUSTED)


@pytest.mark.requirement("S19", "S72")
def test_a_success_ends_the_run_with_status_result_and_duration() -> None:
    ended = completion_of(claimed(), Success(204, "done"), None, after(2))

    assert (ended.state, ended.outcome, ended.reason) == (RunState.SUCCEEDED, "succeeded", None)
    assert (ended.http_status, ended.result, ended.duration_ms) == (204, "done", 2000)
    assert (ended.token, ended.next_attempt_at, ended.staged_at) == (2, None, None)


@pytest.mark.requirement("S34")
@pytest.mark.parametrize(
    ("decided", "state", "reason"),
    [
        (Retry(after(8)), RunState.RETRYING, None),
        (Dead(ATTEMPTS_EXHAUSTED), RunState.DEAD, ATTEMPTS_EXHAUSTED),
        (Expired(), RunState.EXPIRED, "expired"),
    ],
)
def test_a_failure_is_on_the_record_whatever_comes_next(
    decided: Decision, state: RunState, reason: str | None
) -> None:
    ended = completion_of(claimed(), FAILED, decided, NINE)

    assert (ended.state, ended.reason, ended.outcome) == (state, reason, "failed")
    assert (ended.error_code, ended.error, ended.http_status) == ("http_error", "HTTP 500", 500)
    assert ended.next_attempt_at == (after(8) if state is RunState.RETRYING else None)


@pytest.mark.parametrize(
    ("wait", "staged"),
    [
        (timedelta(0), True),
        (LONGEST_DELAY, True),
        (LONGEST_DELAY + timedelta(milliseconds=1), False),
    ],
)
def test_a_retry_within_reach_is_published_and_a_later_one_rests_in_the_ledger(
    wait: timedelta, *, staged: bool
) -> None:
    ended = completion_of(claimed(), FAILED, Retry(NINE + wait), NINE)

    assert (ended.staged_at is not None) is staged
    assert ended.next_attempt_at == NINE + wait


def test_who_stands_aside_is_in_nobodys_way_and_comes_back_in_order() -> None:
    first, second, other = (claimed(number, after(number)) for number in range(3))
    heap = StartQueue()
    for run in (second, first):
        heap.defer(run)
    heap.push(other)

    assert (len(heap), heap.next_due()) == (1, other.ticket.due_at)
    assert heap.deferred_counts() == {first.downstream: 2}
    heap.resume(first.downstream)
    assert heap.pop() == first
    assert set(heap.waiting()) == {second, other}
    assert heap.remove({second.key}) == [second]
    heap.resume(first.downstream)
    assert heap.deferred_counts() == {}


def test_a_crowd_wakes_its_lane_the_more_seldom_the_larger_it_is() -> None:
    dozes = [
        min_sleep(waiting)
        for waiting in (
            BATCHED_START_THRESHOLD - 1,
            BATCHED_START_THRESHOLD,
            3 * BATCHED_START_THRESHOLD,
            1_000 * BATCHED_START_THRESHOLD,
        )
    ]

    assert dozes == [0, GRAIN, 3 * GRAIN, COARSEST]
