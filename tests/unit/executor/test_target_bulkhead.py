"""What one target may have of a lane, and what becomes of the rest of its work."""

from datetime import timedelta

import pytest

from harebell.executor.model.throughput import MAX_UNSTARTED
from harebell.executor.running.target_bulkhead import (
    MAX_KNOWN,
    MAX_REQUEUE,
    TargetBulkhead,
    requeue_ttl,
)
from harebell.messaging.topology.delay_queues import REQUEUE_TTL_MS

SLOW, QUICK = "http:slow.example", "http:quick.example"


def busy(
    shares: TargetBulkhead, downstream: str, *, seconds: float | None = None
) -> TargetBulkhead:
    """It has all it may have, and if told so, has had it for long."""
    for _ in range(shares.most):
        shares.began(downstream)
    for _ in range(1_000 if seconds else 0):
        shares.began(downstream)
        shares.ended(downstream, seconds or 0)
    return shares


@pytest.mark.parametrize(
    ("slots", "share", "most"), [(40, 0.75, 30), (10, 0.75, 7), (1, 0.75, 1), (40, 1, 40)]
)
def test_no_target_has_more_than_its_share_of_the_slots(
    slots: int, share: float, most: int
) -> None:
    shares = busy(TargetBulkhead(slots, share), SLOW)

    assert shares.most == most
    assert not shares.has_capacity(SLOW)
    assert shares.has_capacity(QUICK)


def test_a_slot_that_is_free_again_may_be_had_again() -> None:
    shares = busy(TargetBulkhead(4, 0.5), SLOW)

    shares.ended(SLOW, 1.0)

    assert shares.has_capacity(SLOW)


def test_a_quick_target_is_known_to_be_quick_though_it_has_been_idle() -> None:
    shares = TargetBulkhead(40, 0.75)
    for _ in range(1_000):
        shares.began(QUICK)
        shares.ended(QUICK, 0.001)

    busy(shares, QUICK)

    assert shares.saturated({QUICK: MAX_UNSTARTED // 2}) == frozenset()


def test_a_new_target_is_taken_to_be_as_quick_as_the_lane() -> None:
    shares = TargetBulkhead(40, 0.75)
    for _ in range(shares.most):
        shares.began(QUICK, usual=0.001)

    assert shares.saturated({QUICK: MAX_UNSTARTED // 2}) == frozenset()


def test_of_targets_that_are_idle_so_many_are_remembered() -> None:
    shares = TargetBulkhead(2, 1)
    shares.began(SLOW)
    for number in range(MAX_KNOWN + 10):
        shares.began(f"http:{number}.example")
        shares.ended(f"http:{number}.example", 0.001)

    shares.ended(SLOW, 1.0)

    assert len(shares) == MAX_KNOWN + shares.slots


@pytest.mark.parametrize(
    ("seconds", "enough"),
    [
        (3_600, 40),
        (1.0, 30 * REQUEUE_TTL_MS / 1000),
        (0.1, 300 * REQUEUE_TTL_MS / 1000),
        (1e-9, MAX_UNSTARTED),
    ],
)
def test_a_target_is_crowded_once_enough_stands_aside_to_use_its_share_until_more_comes(
    seconds: float, enough: float
) -> None:
    shares = busy(TargetBulkhead(40, 0.75), SLOW, seconds=seconds)

    assert shares.saturated({SLOW: int(enough * 0.99)}) == frozenset()
    assert shares.saturated({SLOW: int(enough * 1.01) + 1, QUICK: 10_000}) == {SLOW}


@pytest.mark.parametrize("late", [timedelta(0), timedelta(seconds=20), timedelta(hours=9)])
@pytest.mark.parametrize("dice", [0.0, 0.5, 0.999])
def test_who_waits_for_a_crowded_target_goes_round_no_longer_than_it_is_late(
    late: timedelta, dice: float
) -> None:
    waits = timedelta(milliseconds=requeue_ttl(late, dice))

    assert timedelta(milliseconds=REQUEUE_TTL_MS) <= waits
    assert waits <= max(min(late, MAX_REQUEUE), timedelta(milliseconds=REQUEUE_TTL_MS))
