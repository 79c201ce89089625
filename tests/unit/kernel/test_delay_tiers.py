"""Which tier a message waits in: one hop for the horizon, and out before its margin."""

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schedules import HORIZON

from harebell.kernel.delay import LONGEST_MS, MARGIN, REACH, SHORTEST_MS, TIERS, tier_for

MS = timedelta(milliseconds=1)


def walk(wait: timedelta) -> tuple[timedelta, int]:
    """Tier by tier until none fits: what is left then, and the hops."""
    hops = 0
    while (tier := tier_for(wait)) is not None:
        wait -= tier * MS
        hops += 1
    return wait, hops


@pytest.mark.parametrize(
    ("wait", "tier"),
    [
        (timedelta(days=-1), None),
        (timedelta(0), None),
        (MARGIN, None),
        (MARGIN + SHORTEST_MS * MS - timedelta(microseconds=1), None),
        (MARGIN + SHORTEST_MS * MS, SHORTEST_MS),
        (REACH - MS, TIERS[-2]),
        (REACH, LONGEST_MS),
        (timedelta(days=365), LONGEST_MS),
    ],
)
def test_the_longest_tier_that_still_leaves_the_margin(wait: timedelta, tier: int | None) -> None:
    assert tier_for(wait) == tier


def test_s36_the_horizon_lies_just_above_a_tier_so_most_runs_wait_once() -> None:
    left, hops = walk(HORIZON)

    assert hops == 1
    assert MARGIN <= left < MARGIN + SHORTEST_MS * MS


def test_tiers_grow_by_a_quarter_octave() -> None:
    steps = [longer / shorter for shorter, longer in pairwise(TIERS)]

    assert all(1 < step <= 1.191 for step in steps)
    assert (TIERS[0], TIERS[-1]) == (SHORTEST_MS, LONGEST_MS)


@settings(max_examples=100)
@given(wait=st.timedeltas(timedelta(0), timedelta(hours=2)))
def test_s03_no_walk_through_the_tiers_comes_out_past_its_margin(wait: timedelta) -> None:
    left, hops = walk(wait)

    assert left >= min(wait, MARGIN)
    assert left < MARGIN + SHORTEST_MS * MS
    assert hops <= 16 + wait / (LONGEST_MS * MS)
