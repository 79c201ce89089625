"""Unit tests of the number of runs that a lane may claim."""

import pytest

from harebell.executor.running.bulkheads import (
    MAX_UNSTARTED,
    MAX_UNSTARTED_WHEN_LATE,
    ThroughputEstimate,
)


@pytest.mark.requirement("S67", "S68")
@pytest.mark.parametrize(
    ("seconds", "unstarted", "running", "capacity"),
    [
        (0.5, 0, [], 40),
        (0.5, 60, [], 0),
        (0.1, 0, [], 200),
        (0.1, 100, [], 100),
        (0.1, 101, [], 0),  # above the low water mark
        (30.0, 0, [], 40),
        (0.0, 0, [], MAX_UNSTARTED),
        (0.0, 0, [9.0] * 39, MAX_UNSTARTED),  # one slot is free
        (0.0, 0, [0.2] * 40, 100),
        (0.0, 0, [9.0] * 40, 40),  # the running attempts are slower than the earlier ones
    ],
)
def test_capacity_is_the_work_of_half_a_second_and_at_least_the_slots(
    seconds: float, unstarted: int, running: list[float], capacity: int
) -> None:
    assert ThroughputEstimate(40, seconds).capacity(unstarted, running) == capacity


@pytest.mark.parametrize(
    ("seconds", "unstarted", "capacity"),
    [
        (0.0, 0, MAX_UNSTARTED_WHEN_LATE),
        (0.0, MAX_UNSTARTED_WHEN_LATE // 2 + 1, 0),
        (0.1, 0, 200),
        (30.0, 0, 40),
    ],
)
def test_capacity_has_a_lower_limit_while_a_run_is_late(
    seconds: float, unstarted: int, capacity: int
) -> None:
    estimate = ThroughputEstimate(40, seconds)

    assert estimate.capacity(unstarted, [], is_late=True) == capacity


def test_estimate_follows_a_new_duration_within_a_hundred_attempts() -> None:
    estimate = ThroughputEstimate(40)
    for _ in range(100):
        estimate.record(0.001)
    capacity_of_quick_attempts = estimate.capacity(0, [])
    for _ in range(100):
        estimate.record(5)

    assert capacity_of_quick_attempts > 400
    assert estimate.capacity(0, []) == 40
