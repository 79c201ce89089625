"""The next times in responses, which omit every time without a run."""

from datetime import datetime
from typing import Any

import pytest
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import RunState, ScheduleState

EVERY = {"every": "30s", "start": "2026-11-20T09:00:00Z"}
TWICE = {**EVERY, "times": 2}


def put(when: dict[str, Any], **policies: Any) -> tuple[FakeTicker, list[datetime]]:
    ticker = FakeTicker(NINE)
    return ticker, next_times_of(ticker.put(when, **policies))


def next_times_of(response: object) -> list[datetime]:
    assert isinstance(response, ScheduleResponse)
    return response.next_at


@pytest.mark.requirement("S06")
def test_response_contains_only_the_times_that_times_still_allows() -> None:
    ticker, created = put(TWICE)

    patched = next_times_of(ticker.wait(1).send("schedule.patch", set={"priority": 9}))
    ticker.send("schedule.pause")
    resumed = next_times_of(ticker.wait(1).send("schedule.resume"))
    ticker.run_due()
    later = next_times_of(ticker.wait(31).send("schedule.patch", set={"priority": 8}))

    assert created == resumed == [NINE, after(30)]
    assert patched == [after(30)]
    assert later == []


@pytest.mark.requirement("S06")
def test_schedule_that_has_used_its_times_stays_completed_after_a_change() -> None:
    ticker, _ = put(TWICE)
    for _ in range(10):
        ticker.run_due()
        ticker.wait(10).stage_all()

    response = ticker.send("schedule.patch", set={"priority": 9})

    assert (response.state, next_times_of(response)) == ("completed", [])
    assert (ticker.record.state, ticker.record.next_at) == (ScheduleState.COMPLETED, None)


@pytest.mark.requirement("S06")
def test_scheduled_change_keeps_the_remaining_number_of_runs() -> None:
    ticker, _ = put({**EVERY, "times": 3})

    scheduled = ticker.wait(1).send("schedule.patch", set={"priority": 9}, effective_at=after(45))
    for _ in range(20):
        ticker.run_due()
        ticker.wait(10).stage_all()

    assert next_times_of(scheduled) == [after(30), after(60)]
    assert ticker.times_in(RunState.SUCCEEDED) == [NINE, after(30), after(60)]


@pytest.mark.requirement("S28")
def test_response_contains_the_old_times_before_the_effective_time_and_the_new_ones_after_it() -> (
    None
):
    ticker, _ = put(EVERY)

    scheduled = ticker.put({"every": "7s"}, effective_at=after(40), expected_version="any")

    assert next_times_of(scheduled) == [after(30), after(47), after(54)]


@pytest.mark.requirement("S28")
def test_response_contains_the_time_of_a_one_shot_until_it_is_cancelled() -> None:
    ticker, created = put({"at": after(600)})

    scheduled = ticker.put({"at": after(900)}, effective_at=after(700), expected_version="any")
    cancelled = ticker.send("schedule.cancel")

    assert created == [after(600)]
    assert next_times_of(scheduled) == [after(600), after(900)]
    assert next_times_of(cancelled) == []


def test_response_omits_skipped_times() -> None:
    ticker, _ = put(EVERY)

    response = ticker.send("schedule.skip", at=after(120))
    ticker.send("schedule.skip", at=after(30))
    ticker.wait(1)

    assert next_times_of(response) == [after(30), after(60), after(90)]
    assert next_times_of(ticker.wait(61).send("schedule.trigger")) == [
        after(90),
        after(150),
        after(180),
    ]


@pytest.mark.parametrize("rule", [{"from": "completion"}, {"until": "success"}])
def test_response_contains_no_time_after_an_awaited_run(rule: dict[str, str]) -> None:
    ticker, _ = put({**EVERY, **rule})

    assert next_times_of(ticker.wait(1).send("schedule.trigger")) == []


def test_response_to_a_resume_omits_missed_times() -> None:
    ticker, _ = put(EVERY, catch_up={"mode": "none"})
    ticker.send("schedule.pause")

    resumed = next_times_of(ticker.wait(300).send("schedule.resume"))

    assert resumed[0] >= after(240)


def test_schedule_without_any_time_is_completed_at_once() -> None:
    ticker, created = put({**EVERY, "end": "2026-11-20T08:00:00Z", "start": None})

    assert (created, ticker.record.state) == ([], ScheduleState.COMPLETED)
