"""Which tier a message waits in: one hop for the horizon, and out before its margin."""

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.schedules import HORIZON
from tests.fakes.tickets import NINE

from harebell.messaging.topology.delay_queues import (
    DELAY_TTLS_MS,
    LONGEST_DELAY,
    LONGEST_MS,
    MARGIN,
    SHORTEST_MS,
    Tier,
    route,
    ttl_for,
)

MS = timedelta(milliseconds=1)


def walk(wait: timedelta) -> tuple[timedelta, int]:
    """Tier by tier until none fits: what is left then, and the hops."""
    hops = 0
    while (tier := ttl_for(wait)) is not None:
        wait -= tier * MS
        hops += 1
    return wait, hops


@pytest.mark.requirement("S37")
@pytest.mark.parametrize(
    ("wait", "tier"),
    [
        (timedelta(days=-1), None),
        (timedelta(0), None),
        (MARGIN, None),
        (MARGIN + SHORTEST_MS * MS - timedelta(microseconds=1), None),
        (MARGIN + SHORTEST_MS * MS, SHORTEST_MS),
        (LONGEST_DELAY - MS, DELAY_TTLS_MS[-2]),
        (LONGEST_DELAY, LONGEST_MS),
        (timedelta(days=365), LONGEST_MS),
    ],
)
def test_the_longest_tier_that_still_leaves_the_margin(wait: timedelta, tier: int | None) -> None:
    assert ttl_for(wait) == tier


@pytest.mark.requirement("S37")
@pytest.mark.parametrize(
    ("wait", "way", "tier", "reason"),
    [
        (-MS, Tier.IMMEDIATE, None, "it is overdue"),
        (timedelta(0), Tier.IMMEDIATE, None, "it is overdue"),
        (MS, Tier.IMMEDIATE, None, "it is due sooner than the shortest delay tier lets"),
        (MARGIN + SHORTEST_MS * MS - MS, Tier.IMMEDIATE, None, "it is due sooner than"),
        (MARGIN + SHORTEST_MS * MS, Tier.HOT, SHORTEST_MS, "it waits in harebell.delay.1500"),
        (HORIZON, Tier.HOT, 80_726, "it waits in harebell.delay.80726"),
        (HORIZON + MS, Tier.COLD, None, "it rests in PostgreSQL"),
    ],
)
def test_three_routes_by_how_far_away_it_is_and_the_horizon(
    wait: timedelta, way: Tier, tier: int | None, reason: str
) -> None:
    chosen = route(NINE + wait, NINE, horizon=HORIZON)

    assert (chosen.tier, chosen.ttl_ms) == (way, tier)
    assert chosen.reason.startswith(reason)


@pytest.mark.requirement("S37")
def test_what_is_handed_over_in_any_case_waits_in_the_longest_tier_first() -> None:
    assert route(NINE + 2 * LONGEST_DELAY, NINE).ttl_ms == LONGEST_MS


@pytest.mark.requirement("S36")
def test_the_horizon_lies_just_above_a_tier_so_most_runs_wait_once() -> None:
    left, hops = walk(HORIZON)

    assert hops == 1
    assert MARGIN <= left < MARGIN + SHORTEST_MS * MS


def test_tiers_grow_by_a_quarter_octave() -> None:
    steps = [longer / shorter for shorter, longer in pairwise(DELAY_TTLS_MS)]

    assert all(1 < step <= 1.191 for step in steps)
    assert (DELAY_TTLS_MS[0], DELAY_TTLS_MS[-1]) == (SHORTEST_MS, LONGEST_MS)


@pytest.mark.requirement("S03", "ASK-5")
@settings(max_examples=100)
@given(wait=st.timedeltas(timedelta(0), timedelta(hours=2)))
def test_no_walk_through_the_tiers_comes_out_past_its_margin(wait: timedelta) -> None:
    left, hops = walk(wait)

    assert left >= min(wait, MARGIN)
    assert left < MARGIN + SHORTEST_MS * MS
    assert hops <= 16 + wait / (LONGEST_MS * MS)
