"""The planner under any sequence of passes, and after any outage."""

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.schedules import HORIZON, FakePlanning, definition, seconds
from tests.fakes.tickets import NINE, after

from harebell.contract.schedule import Definition
from harebell.contract.types import duration_text, instant_text
from harebell.domain.planner import MISSED_AFTER
from harebell.domain.recurrence import next_times

SPAN = 1800.0  # seconds that the test plans
LONGEST_GAP = 120.0  # seconds between passes, so that no time is missed
FEW = settings(max_examples=60)

offsets = st.integers(-900, 2000).map(after)
bounds = st.fixed_dictionaries(
    {}, optional={"start": offsets.map(instant_text), "end": offsets.map(instant_text)}
)
limits = st.fixed_dictionaries({}, optional={"times": st.integers(1, 60)})
intervals = st.integers(1_000, 400_000).map(lambda ms: duration_text(timedelta(milliseconds=ms)))
expressions = st.sampled_from(["*/7 * * * * *", "* * * * *", "*/5 8-9 * * *", "H/13 * * * * *"])
one_shots = st.one_of(
    st.just({"now": True}),
    offsets.map(lambda at: {"at": instant_text(at)}),
    st.integers(0, 2000).map(lambda s: {"after": f"{s}s"}),
)
recurring = st.builds(
    lambda kind, bound, limit: {**kind, **bound, **limit},
    st.one_of(
        intervals.map(lambda every: {"every": every}),
        expressions.map(lambda cron: {"cron": cron, "timezone": "Europe/Berlin"}),
    ),
    bounds,
    limits,
)
jitters = st.sampled_from([{}, {"jitter": "30s"}])
whens = st.builds(lambda when, jitter: {**when, **jitter}, one_shots | recurring, jitters)
gaps = st.lists(st.floats(0.001, LONGEST_GAP), max_size=40)


def looks(spaces: list[float]) -> list[datetime]:
    """Return the times of the passes, from the acceptance to the end of the span."""
    moments, at = [NINE], 0.0
    for space in [*spaces, *[LONGEST_GAP] * int(SPAN / LONGEST_GAP)]:
        at += space
        if at >= SPAN:
            break
        moments.append(after(at))
    return [*moments, after(SPAN)]


@pytest.mark.requirement("ASK-23")
@FEW
@given(when=whens, spaces=gaps)
def test_runs_do_not_depend_on_the_number_of_passes(
    when: dict[str, Any], spaces: list[float]
) -> None:
    once = FakePlanning(definition(when)).plan_until_horizon(NINE, until=after(SPAN) + HORIZON)
    often = FakePlanning(definition(when))
    for now in looks(spaces):
        often.plan_until_horizon(now)

    assert often.runs == once.runs
    assert often.skipped == once.skipped == []
    assert often.next_at == once.next_at


@FEW
@given(when=whens, spaces=gaps, horizons=st.lists(st.floats(0, 300), min_size=60, max_size=60))
def test_runs_do_not_depend_on_the_horizon(
    when: dict[str, Any], spaces: list[float], horizons: list[float]
) -> None:
    once = FakePlanning(definition(when)).plan_until_horizon(NINE, until=after(SPAN))
    often = FakePlanning(definition(when))
    for now, ahead in zip(looks(spaces), horizons, strict=False):
        often.plan_until_horizon(now, until=min(now + max(HORIZON, seconds(ahead)), after(SPAN)))
    often.plan_until_horizon(after(SPAN), until=after(SPAN))

    assert often.runs == once.runs
    assert often.skipped == once.skipped == []


policies = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(["none", "one", "all"]),
        "window": st.integers(0, 4000).map(lambda s: f"{s}s"),
        "max": st.integers(1, 100),
    }
)


def model(policy: Definition, required: list[datetime], now: datetime) -> list[datetime]:
    """Return the runs of an outage that one pass decides."""
    catch_up = policy.catch_up
    missed = [moment for moment in required if now - moment > MISSED_AFTER]
    keep = {"none": 0, "one": 1, "all": catch_up.max}[catch_up.mode]
    latest = missed[::-1][:keep][::-1]
    made_up = [moment for moment in latest if now - moment <= catch_up.window]
    times = getattr(policy.when, "times", None)
    return [*made_up, *required[len(missed) :]][:times]


@pytest.mark.requirement("S76", "ASK-6")
@FEW
@given(when=recurring, policy=policies, outage=st.integers(0, 3500))
def test_catch_up_after_an_outage_matches_the_model(
    when: dict[str, Any], policy: dict[str, Any], outage: int
) -> None:
    planning = FakePlanning(definition(when, catch_up=policy))
    now = after(outage)
    owed = [
        moment
        for moment in next_times(planning.recurrence, planning.planned_until, outage + 90)
        if moment <= now
    ]

    planning.plan_until_horizon(now, until=now)

    assert planning.times == model(planning.definition, owed, now)
    if "times" not in when:
        assert len(planning.runs) + planning.skipped_count == len(owed)
        ranges = [(each.key.scheduled_for, each.until) for each in planning.skipped]
        assert all(last < first for (_, last), (first, _) in pairwise(ranges))


@FEW
@given(
    when=recurring,
    policy=policies,
    expires=st.integers(1, 900),
    looks_at=st.lists(st.integers(0, 3500), min_size=1, max_size=6),
)
def test_each_time_is_decided_once_and_times_is_respected(
    when: dict[str, Any], policy: dict[str, Any], expires: int, looks_at: list[int]
) -> None:
    planning = FakePlanning(definition(when, catch_up=policy, expires_after=f"{expires}s"))
    start = planning.planned_until

    for offset in sorted(looks_at):
        planning.plan_until_horizon(after(offset))

    decided = [(moment, moment) for moment in planning.times]
    decided += [(each.key.scheduled_for, each.until) for each in planning.skipped]
    decided.sort()
    assert all(last < first for (_, last), (first, _) in pairwise(decided))
    if "times" in when:
        assert len(planning.runs) <= when["times"]
    else:
        owed = next_times(
            planning.recurrence, start, len(planning.runs) + planning.skipped_count + 1
        )
        assert len([m for m in owed if m <= planning.planned_until]) == (
            len(planning.runs) + planning.skipped_count
        )
    assert planning.next_at is not None or not _has_more(planning, when)


def _has_more(planning: FakePlanning, when: dict[str, Any]) -> bool:
    left = when.get("times", len(planning.runs) + 1) - len(planning.runs)
    return left > 0 and planning.recurrence.next_after(planning.planned_until) is not None
