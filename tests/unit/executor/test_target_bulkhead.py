"""Unit tests of the target bulkhead: the share of one target, and the requeue of its tickets."""

from datetime import timedelta

import pytest

from harebell.executor.running.bulkheads import (
    MAX_IDLE_TARGETS,
    MAX_REQUEUE,
    MAX_UNSTARTED,
    TargetBulkhead,
    requeue_ttl,
)
from harebell.messaging.topology.delay_queues import DELAY_TTLS_MS, REQUEUE_TTL_MS

SLOW, QUICK = "slow.example:443", "quick.example:443"


def fill(bulkhead: TargetBulkhead, downstream: str, *, seconds: float | None = None) -> None:
    """Use all slots of the target, after many attempts of `seconds`."""
    for _ in range(bulkhead.max_running):
        bulkhead.start(downstream)
    for _ in range(1_000 if seconds else 0):
        bulkhead.start(downstream)
        bulkhead.finish(downstream, seconds or 0)


@pytest.mark.parametrize(
    ("slots", "max_share", "max_running"),
    [(40, 0.75, 30), (10, 0.75, 7), (1, 0.75, 1), (40, 1, 40)],
)
def test_target_has_no_capacity_after_it_uses_its_share_of_the_slots(
    slots: int, max_share: float, max_running: int
) -> None:
    bulkhead = TargetBulkhead(slots=slots, max_share=max_share)

    fill(bulkhead, SLOW)

    assert bulkhead.max_running == max_running
    assert not bulkhead.has_capacity(SLOW)
    assert bulkhead.has_capacity(QUICK)


def test_target_has_capacity_after_the_end_of_an_attempt() -> None:
    bulkhead = TargetBulkhead(slots=4, max_share=0.5)
    fill(bulkhead, SLOW)

    bulkhead.finish(SLOW, 1.0)

    assert bulkhead.has_capacity(SLOW)


def test_throughput_of_a_target_is_remembered_while_the_target_is_idle() -> None:
    bulkhead = TargetBulkhead(slots=40, max_share=0.75)
    for _ in range(1_000):
        bulkhead.start(QUICK)
        bulkhead.finish(QUICK, 0.001)

    fill(bulkhead, QUICK)

    assert bulkhead.saturated({QUICK: MAX_UNSTARTED // 2}) == {}


def test_new_target_has_the_throughput_of_its_lane() -> None:
    bulkhead = TargetBulkhead(slots=40, max_share=0.75)
    for _ in range(bulkhead.max_running):
        bulkhead.start(QUICK, expected_seconds=0.001)

    assert bulkhead.saturated({QUICK: MAX_UNSTARTED // 2}) == {}


def test_bulkhead_remembers_a_limited_number_of_idle_targets() -> None:
    bulkhead = TargetBulkhead(slots=2, max_share=1)
    bulkhead.start(SLOW)
    for number in range(MAX_IDLE_TARGETS + 10):
        bulkhead.start(f"{number}.example:443")
        bulkhead.finish(f"{number}.example:443", 0.001)

    bulkhead.finish(SLOW, 1.0)

    assert len(bulkhead) == MAX_IDLE_TARGETS + bulkhead.slots


@pytest.mark.parametrize(
    ("seconds", "enough"),
    [
        (3_600, 40),
        (1.0, 30 * REQUEUE_TTL_MS / 1000),
        (0.1, 300 * REQUEUE_TTL_MS / 1000),
        (1e-9, MAX_UNSTARTED),
    ],
)
def test_target_is_saturated_when_enough_runs_are_deferred_until_requeued_tickets_return(
    seconds: float, enough: float
) -> None:
    bulkhead = TargetBulkhead(slots=40, max_share=0.75)
    fill(bulkhead, SLOW, seconds=seconds)

    assert bulkhead.saturated({SLOW: int(enough * 0.99)}) == {}
    assert bulkhead.saturated({SLOW: int(enough * 1.01) + 1, QUICK: 10_000}).keys() == {SLOW}


@pytest.mark.parametrize("lateness", [timedelta(0), timedelta(seconds=20), timedelta(hours=9)])
@pytest.mark.parametrize("random_fraction", [0.0, 0.5, 0.999])
def test_ticket_of_a_saturated_target_is_requeued_for_at_most_its_lateness(
    lateness: timedelta, random_fraction: float
) -> None:
    ttl = timedelta(milliseconds=requeue_ttl(lateness, random_fraction))

    assert timedelta(milliseconds=REQUEUE_TTL_MS) <= ttl
    assert ttl <= max(min(lateness, MAX_REQUEUE), timedelta(milliseconds=REQUEUE_TTL_MS))


def test_tickets_of_a_saturated_target_return_at_different_times() -> None:
    fractions = [number / 100 for number in range(100)]

    ttls = {requeue_ttl(timedelta(minutes=10), fraction) for fraction in fractions}

    permitted = [ms for ms in DELAY_TTLS_MS if REQUEUE_TTL_MS <= ms <= 60_000]
    assert len(permitted) > 10
    assert sorted(ttls) == permitted
