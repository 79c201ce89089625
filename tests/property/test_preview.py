"""The preview compared with the planner, and the search for the last scheduled time."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.schedules import ID, PLACEMENT, definition

from harebell.domain.planner import MAX_RUNS, plan
from harebell.domain.preview import upcoming_runs
from harebell.domain.recurrence import RESOLUTION
from harebell.domain.versions import VersionWindow

FROM = datetime(2026, 1, 1, tzinfo=UTC)
COUNT = 8

moments = st.integers(0, 2 * 365 * 24 * 60).map(lambda minutes: FROM + timedelta(minutes=minutes))
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
crons = st.sampled_from(
    [
        "*/20 * * * *",
        "30 2 * * *",
        "0 9 * * 1-5",
        "H H * * *",
        "10/25 5/6 * * *",
        "5,35 1-3 * * *",
        "0 0 29 2 *",
    ]
)
recurring = st.fixed_dictionaries(
    {"timezone": zones},
    optional={"times": st.integers(1, 5), "jitter": st.just("30s"), "end": st.just("2027-06-01")},
)
rules = crons.map(lambda text: {"cron": text}) | st.sampled_from(
    [{"every": "7h"}, {"every": "90s"}]
)
whens = st.builds(lambda rule, more: {**rule, **more}, rules, recurring) | st.builds(
    lambda one, two, more: {"any_of": [one, two], **more}, rules, rules, recurring
)


@pytest.mark.requirement("ASK-19")
@given(when=whens, accepted=moments, taken_out=st.sets(st.integers(0, COUNT - 1), max_size=3))
def test_preview_matches_the_planner(
    when: dict[str, Any], accepted: datetime, taken_out: set[int]
) -> None:
    edition = VersionWindow(schedule_id=ID, policy=definition(when), since=accepted)
    first = upcoming_runs([edition], after=accepted, count=COUNT)
    skips = {each.at for place, each in enumerate(first) if place in taken_out}

    shown = upcoming_runs([edition], after=accepted, count=COUNT, skipped_times=skips)

    made = plan(
        edition.recurrence,
        edition.policy,
        ID,
        placement=PLACEMENT,
        cursor=accepted,
        dispatched=0,
        now=accepted,
        until=shown[-1].at if shown else accepted,
        skipped_times=skips,
    )
    assert len(shown) < MAX_RUNS
    assert [(each.at, each.due_at) for each in shown if not each.is_skipped] == [
        (run.scheduled_for, run.due_at) for run in made.runs
    ]


@given(when=whens, accepted=moments, after=st.timedeltas(timedelta(0), timedelta(days=40)))
def test_last_time_until_has_no_later_time(
    when: dict[str, Any], accepted: datetime, after: timedelta
) -> None:
    edition = VersionWindow(schedule_id=ID, policy=definition(when), since=accepted)
    now = accepted + after

    last = edition.last_time_until(now)

    if last is None:
        following = edition.next_after(accepted - RESOLUTION)
        assert following is None or following > now
    else:
        assert edition.includes(last)
        following = edition.next_after(last)
        assert last <= now
        assert following is None or following > now
