"""A year in the life of five hundred schedules, outages included, against rules reckoned anew."""

import logging
from bisect import bisect_left, bisect_right
from collections import Counter
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from tests.simulation.expected_runs import END, START, duration, instants
from tests.simulation.generators import Drawing
from tests.simulation.model_check import Lived, Model, Tickers

from harebell.contract.responses import ScheduleResponse
from harebell.domain.run_states import ScheduleState

log = logging.getLogger(__name__)

SCHEDULES = 500
SHARES = 5  # tests that they are dealt out to
SECOND = timedelta(seconds=1)


def live(schedule: dict[str, Any], tickers: Tickers, model: Model) -> Lived:
    """Look by look, both have the same instants left."""
    lived = Lived(START)
    answer = lived.put(**schedule)
    assert isinstance(answer, ScheduleResponse)
    announced = model.instants[: schedule["when"].get("times", 3)][:3]
    assert [at for at in answer.next_at if at <= END] == announced
    lived.stage_all()
    model.look(START)
    for now in tickers.looks(model, START):
        lived.now = now
        lived.stage_all()
        model.look(now)
        assert_same_future(lived, model)
    return lived


def assert_same_future(lived: Lived, model: Model) -> None:
    next_at, state = lived.record.next_at, lived.record.state
    if model.following is None:
        assert next_at is None or next_at > END
    else:
        assert next_at == model.following
    assert state is (ScheduleState.ACTIVE if next_at else ScheduleState.COMPLETED)


def unrun(lived: Lived, owed: list[datetime]) -> dict[datetime, str]:
    """Instants on the record that did not run: each in one range, which counts them."""
    found: dict[datetime, str] = {}
    for each in lived.unrun:
        first, last = bisect_left(owed, each.key.scheduled_for), bisect_right(owed, each.until)
        assert last - first == each.count
        assert not found.keys() & set(owed[first:last])
        found |= dict.fromkeys(owed[first:last], each.reason.value)
    return found


def assert_same_past(lived: Lived, model: Model) -> None:
    assert [run.key.scheduled_for for run in lived.runs] == model.runs
    assert unrun(lived, model.instants) == model.unrun
    jitter = duration(model.when.get("jitter", "0s"))
    expires = model.schedule.get("expires_after")
    for run in lived.runs:
        at = run.key.scheduled_for
        assert at <= run.due_at <= at + jitter
        assert run.expires_at == (None if expires is None else at + duration(expires))


@pytest.mark.parametrize("share", range(SHARES))
def test_a_year_of_any_schedule_goes_as_the_rules_say(share: int) -> None:
    happened: Counter[str] = Counter()
    for number in range(share, SCHEDULES, SHARES):
        drawing = Drawing(Random(number))  # noqa: S311  # the same dice at every run
        schedule = drawing.schedule(START)
        model = Model(schedule, instants(schedule["when"], START))
        tickers = Tickers(drawing.dice, *drawing.outages().values())
        try:
            lived = live(schedule, tickers, model)
            assert_same_past(lived, model)
        except AssertionError as error:
            error.add_note(f"schedule {number}: {schedule}, {tickers}")
            raise
        happened.update({"instants": len(model.instants), "runs": len(model.runs)})
        happened.update(model.unrun.values())
    log.info("%s", dict(happened))
    assert min(happened[each] for each in ("runs", "missed", "expired")) > 0


@pytest.mark.parametrize("mode", ["none", "one", "all"])
def test_an_outage_of_thousands_of_instants_is_one_outage(mode: str) -> None:
    """More than a pass looks at: those at the end of a pass are not yet the latest."""
    away = {"every": "1s", "start": START.isoformat(), "end": (START + 7_000 * SECOND).isoformat()}
    schedule: dict[str, Any] = {"when": away, "catch_up": {"mode": mode, "window": "3d", "max": 7}}
    model = Model(schedule, instants(away, START))
    lived = Lived(START)
    lived.put(**schedule)

    for now in (START, START + 6_999 * SECOND):
        lived.now = now
        lived.stage_all()
        model.look(now)

    assert_same_past(lived, model)
    assert len(model.unrun) > 6_000
