"""One year of 500 schedules with outages, compared with an independent model of the rules."""

import logging
from bisect import bisect_left, bisect_right
from collections import Counter
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from tests.simulation.expected_runs import END, START, duration, scheduled_times
from tests.simulation.generators import ScheduleGenerator
from tests.simulation.model_check import PollTimes, RecordingTicker, ScheduleModel

from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import ScheduleState

log = logging.getLogger(__name__)

SCHEDULES = 500
SHARES = 10  # tests that divide the schedules
SECOND = timedelta(seconds=1)


def run_year(schedule: dict[str, Any], polls: PollTimes, model: ScheduleModel) -> RecordingTicker:
    """Poll the ticker and the model, and compare their next times after each poll."""
    ticker = RecordingTicker(START)
    response = ticker.put(**schedule)
    assert isinstance(response, ScheduleResponse)
    announced = model.times[: schedule["when"].get("times", 3)][:3]
    assert [at for at in response.next_at if at <= END] == announced
    ticker.stage_all()
    model.poll(START)
    for now in polls.after(model, START):
        ticker.now = now
        ticker.stage_all()
        model.poll(now)
        assert_same_future(ticker, model)
    return ticker


def assert_same_future(ticker: RecordingTicker, model: ScheduleModel) -> None:
    next_at, state = ticker.record.next_at, ticker.record.state
    if model.next_time is None:
        assert next_at is None or next_at > END
    else:
        assert next_at == model.next_time
    assert state is (ScheduleState.ACTIVE if next_at else ScheduleState.COMPLETED)


def skipped_times(ticker: RecordingTicker, times: list[datetime]) -> dict[datetime, str]:
    """Return the reasons of skipped times, each of which is in one range with a correct count."""
    reasons: dict[datetime, str] = {}
    for each in ticker.skipped:
        first, last = bisect_left(times, each.key.scheduled_for), bisect_right(times, each.until)
        assert last - first == each.count
        assert not reasons.keys() & set(times[first:last])
        reasons |= dict.fromkeys(times[first:last], each.reason.value)
    return reasons


def assert_same_past(ticker: RecordingTicker, model: ScheduleModel) -> None:
    assert [run.key.scheduled_for for run in ticker.staged] == model.runs
    assert skipped_times(ticker, model.times) == model.skipped
    jitter = duration(model.when.get("jitter", "0s"))
    expires = model.schedule.get("expires_after")
    for run in ticker.staged:
        at = run.key.scheduled_for
        assert at <= run.due_at <= at + jitter
        assert run.expires_at == (None if expires is None else at + duration(expires))


@pytest.mark.parametrize(
    "share", [0, *(pytest.param(share, marks=pytest.mark.long) for share in range(1, SHARES))]
)
def test_ticker_runs_a_year_of_random_schedules_by_the_rules(share: int) -> None:
    counts: Counter[str] = Counter()
    for number in range(share, SCHEDULES, SHARES):
        generator = ScheduleGenerator(Random(number))  # noqa: S311  # the same at every run
        schedule = generator.schedule(START)
        model = ScheduleModel(schedule=schedule, times=scheduled_times(schedule["when"], START))
        polls = PollTimes(generator.random, generator.late_share(), generator.mean_delay())
        try:
            assert_same_past(run_year(schedule, polls, model), model)
        except AssertionError as error:
            error.add_note(f"schedule {number}: {schedule}, {polls}")
            raise
        counts.update({"times": len(model.times), "runs": len(model.runs)})
        counts.update(model.skipped.values())
    log.info("%s", dict(counts))
    assert min(counts[each] for each in ("runs", "missed", "expired")) > 0


@pytest.mark.parametrize("mode", ["none", "one", "all"])
def test_ticker_applies_catch_up_once_when_an_outage_exceeds_one_staging_pass(mode: str) -> None:
    """The last times of a staging pass are not yet the latest missed times."""
    end = (START + 7_000 * SECOND).isoformat()
    when = {"every": "1s", "start": START.isoformat(), "end": end}
    schedule: dict[str, Any] = {"when": when, "catch_up": {"mode": mode, "window": "3d", "max": 7}}
    model = ScheduleModel(schedule=schedule, times=scheduled_times(when, START))
    ticker = RecordingTicker(START)
    ticker.put(**schedule)

    for now in (START, START + 6_999 * SECOND):
        ticker.now = now
        ticker.stage_all()
        model.poll(now)

    assert_same_past(ticker, model)
    assert len(model.skipped) > 6_000
