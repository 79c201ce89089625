"""Unit tests of the start queue: the order of claimed runs, and deferred runs."""

from datetime import datetime

import pytest
from tests.fakes.tickets import NINE, after, ticket

from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.model.start_queue import (
    BATCHED_START_THRESHOLD,
    MAX_MIN_SLEEP,
    TIMER_RESOLUTION,
    StartQueue,
    min_sleep,
)


def claimed(
    number: int = 0, due_at: datetime = NINE, *, priority: int = 5, seq: int = 1
) -> ClaimedRun:
    of_run = ticket(number, due_at, priority=priority, seq=seq)
    return ClaimedRun(ticket=of_run, token=seq + 1, attempt=1, lease=15.0, renewed_at=100.0)


def pop_all(queue: StartQueue, now: datetime = NINE) -> list[ClaimedRun]:
    return [queue.pop(lambda: now) for _ in range(len(queue))]


def queue_of(*runs: ClaimedRun) -> StartQueue:
    queue = StartQueue()
    for run in runs:
        queue.push(run)
    return queue


@pytest.mark.requirement("S21", "S43")
def test_queue_returns_due_runs_by_priority_and_the_others_by_due_time() -> None:
    later, soon = claimed(1, after(2), priority=10), claimed(2, after(1), priority=1)
    low, first, second, high = (
        claimed(number, priority=priority) for number, priority in ((3, 1), (4, 5), (5, 5), (6, 9))
    )
    queue = queue_of(later, soon, low, first, second, high)

    assert pop_all(queue) == [high, first, second, low, soon, later]


@pytest.mark.requirement("S21", "S43")
def test_late_run_starts_before_a_run_of_a_higher_priority() -> None:
    low, high, higher = (
        claimed(number, after(due_in), priority=priority)
        for number, due_in, priority in ((1, 0, 1), (2, 5.5, 2), (3, 9.5, 3))
    )

    assert pop_all(queue_of(high, low, higher), after(10)) == [higher, low, high]


@pytest.mark.requirement("S21", "S47")
def test_next_due_is_the_earliest_due_time_when_a_later_run_starts_first() -> None:
    queue = queue_of(claimed(1, after(0), priority=4), claimed(2, after(1), priority=7))

    assert queue.next_due() == NINE
    assert queue.first_rank(after(1)) == after(1 - 35)
    queue.pop(lambda: after(1))
    assert queue.next_due() == NINE


@pytest.mark.requirement("S47")
def test_next_due_is_the_earliest_due_time() -> None:
    queue = StartQueue()
    empty = queue.next_due()
    queue.push(claimed(1, after(2)))
    queue.push(claimed(2, after(1)))

    assert (empty, queue.next_due()) == (None, after(1))


@pytest.mark.requirement("S33")
def test_removed_runs_never_leave_the_queue() -> None:
    runs = [claimed(number, after(number)) for number in range(4)]
    queue = StartQueue()
    for run in runs:
        queue.push(run)

    removed = queue.remove_keys({runs[0].key, runs[2].key, claimed(99).key})

    assert removed == [runs[0], runs[2]]
    assert queue.waiting() == [runs[1], runs[3]]
    assert (len(queue), queue.next_due()) == (2, after(1))


@pytest.mark.requirement("S14")
def test_run_has_its_new_ticket_when_it_is_claimed_again_after_its_removal() -> None:
    old, new = claimed(1, priority=5), claimed(1, priority=9, seq=3)
    queue = StartQueue()
    queue.push(old)

    queue.remove_keys({old.key})
    queue.push(new)

    assert pop_all(queue) == [new]


def test_deferred_runs_delay_no_other_run_and_resume_in_order() -> None:
    first, second, other = (claimed(number, after(number)) for number in range(3))
    queue = StartQueue()
    for run in (second, first):
        queue.defer(run)
    queue.push(other)

    assert (len(queue), queue.next_due()) == (1, other.ticket.due_at)
    assert queue.of_targets.counts() == {first.target_share: 2}
    queue.resume(first.target_share)
    assert queue.pop(lambda: after(1)) == first
    assert set(queue.waiting()) == {second, other}
    assert queue.remove_keys({second.key}) == [second]
    queue.resume(first.target_share)
    assert queue.of_targets.counts() == {}


@pytest.mark.requirement("S21", "S43")
def test_deferred_runs_resume_by_start_rank() -> None:
    low, late, high = (
        claimed(number, after(due_in), priority=priority)
        for number, due_in, priority in ((1, 0, 4), (2, -16, 4), (3, 0.4, 7))
    )
    queue = StartQueue()
    for run in (low, late, high):
        queue.defer(run)
    ranks = [queue.of_targets.rank(low.target_share, position) for position in range(3)]

    resumed = []
    for _ in range(3):
        queue.resume(low.target_share)
        resumed.append(queue.pop(lambda: after(1)))

    assert resumed == [late, high, low]
    assert ranks == [after(-36), after(0.4 - 35), after(-20)]


def test_min_sleep_grows_with_the_number_of_waiting_runs_up_to_its_limit() -> None:
    sleeps = [
        min_sleep(waiting)
        for waiting in (
            BATCHED_START_THRESHOLD - 1,
            BATCHED_START_THRESHOLD,
            3 * BATCHED_START_THRESHOLD,
            1_000 * BATCHED_START_THRESHOLD,
        )
    ]

    assert sleeps == [0, TIMER_RESOLUTION, 3 * TIMER_RESOLUTION, MAX_MIN_SLEEP]
