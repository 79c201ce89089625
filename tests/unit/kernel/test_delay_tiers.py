"""Which tier a message waits in: one hop for the horizon, and out before its margin."""

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.schedules import HORIZON
from tests.tickets import NINE

from harebell.kernel.delay import (
    LONGEST_MS,
    MARGIN,
    REACH,
    SHORTEST_MS,
    TIERS,
    Way,
    route,
    tier_for,
)

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


@pytest.mark.parametrize(
    ("wait", "way", "tier", "reason"),
    [
        (-MS, Way.IMMEDIATE, None, "it is overdue"),
        (timedelta(0), Way.IMMEDIATE, None, "it is overdue"),
        (MS, Way.IMMEDIATE, None, "it is due sooner than the shortest delay tier lets"),
        (MARGIN + SHORTEST_MS * MS - MS, Way.IMMEDIATE, None, "it is due sooner than"),
        (MARGIN + SHORTEST_MS * MS, Way.HOT, SHORTEST_MS, "it waits in harebell.delay.1500"),
        (HORIZON, Way.HOT, 80_726, "it waits in harebell.delay.80726"),
        (HORIZON + MS, Way.COLD, None, "it rests in PostgreSQL"),
    ],
)
def test_s37_three_routes_by_how_far_away_it_is_and_the_horizon(
    wait: timedelta, way: Way, tier: int | None, reason: str
) -> None:
    chosen = route(NINE + wait, NINE, reach=HORIZON)

    assert (chosen.way, chosen.tier) == (way, tier)
    assert chosen.reason.startswith(reason)


def test_s37_what_is_handed_over_in_any_case_waits_in_the_longest_tier_first() -> None:
    assert route(NINE + 2 * REACH, NINE).tier == LONGEST_MS


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
