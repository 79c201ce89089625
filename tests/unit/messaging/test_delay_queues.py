"""The route of a waiting run: one delay queue for the horizon, and a release before the margin."""

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
    delay_queue_name,
    route,
    ttl_for,
)

MS = timedelta(milliseconds=1)


def walk(wait: timedelta) -> tuple[timedelta, int]:
    """Return the rest of the wait after all delay queues, and the number of delay queues."""
    hops = 0
    while (ttl_ms := ttl_for(wait)) is not None:
        wait -= ttl_ms * MS
        hops += 1
    return wait, hops


@pytest.mark.requirement("S37")
@pytest.mark.parametrize(
    ("wait", "ttl_ms"),
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
def test_ttl_for_is_the_longest_ttl_that_leaves_the_margin(
    wait: timedelta, ttl_ms: int | None
) -> None:
    assert ttl_for(wait) == ttl_ms


@pytest.mark.requirement("S37")
@pytest.mark.parametrize(
    ("wait", "tier", "ttl_ms", "reason"),
    [
        (-MS, Tier.IMMEDIATE, None, "The run is overdue."),
        (timedelta(0), Tier.IMMEDIATE, None, "The run is overdue."),
        (MS, Tier.IMMEDIATE, None, "The run is due sooner than the shortest delay queue"),
        (MARGIN + SHORTEST_MS * MS - MS, Tier.IMMEDIATE, None, "The run is due sooner than"),
        (
            MARGIN + SHORTEST_MS * MS,
            Tier.HOT,
            SHORTEST_MS,
            "The run waits in harebell.delay.001500.",
        ),
        (HORIZON, Tier.HOT, 80_726, "The run waits in harebell.delay.080726."),
        (HORIZON + MS, Tier.COLD, None, "The run is due after the horizon"),
    ],
)
def test_route_depends_on_the_wait_and_the_horizon(
    wait: timedelta, tier: Tier, ttl_ms: int | None, reason: str
) -> None:
    chosen = route(NINE + wait, NINE, horizon=HORIZON)

    assert (chosen.tier, chosen.ttl_ms) == (tier, ttl_ms)
    assert chosen.reason.startswith(reason)


@pytest.mark.requirement("S37")
def test_route_without_a_horizon_begins_with_the_longest_ttl() -> None:
    assert route(NINE + 2 * LONGEST_DELAY, NINE).ttl_ms == LONGEST_MS


@pytest.mark.requirement("S36")
def test_horizon_is_just_above_a_ttl_so_that_most_runs_wait_once() -> None:
    left, hops = walk(HORIZON)

    assert hops == 1
    assert MARGIN <= left < MARGIN + SHORTEST_MS * MS


def test_names_of_delay_queues_are_in_the_order_of_their_ttls() -> None:
    names = [delay_queue_name(ms) for ms in DELAY_TTLS_MS]

    assert names == sorted(names)
    assert names[0] == "harebell.delay.001500"
    assert names[-1] == "harebell.delay.900000"


def test_ttls_grow_by_the_fourth_root_of_two() -> None:
    steps = [longer / shorter for shorter, longer in pairwise(DELAY_TTLS_MS)]

    assert all(1 < step <= 1.191 for step in steps)
    assert (DELAY_TTLS_MS[0], DELAY_TTLS_MS[-1]) == (SHORTEST_MS, LONGEST_MS)


@pytest.mark.requirement("S03", "ASK-5")
@settings(max_examples=100)
@given(wait=st.timedeltas(timedelta(0), timedelta(hours=2)))
def test_delay_queues_release_a_ticket_before_its_margin(wait: timedelta) -> None:
    left, hops = walk(wait)

    assert left >= min(wait, MARGIN)
    assert left < MARGIN + SHORTEST_MS * MS
    assert hops <= 16 + wait / (LONGEST_MS * MS)
