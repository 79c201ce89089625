"""The event `schedule.completed`, which follows the end of the last run."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, cast

import pytest
from tests.fakes.ticker import FakeTicker
from tests.fakes.tickets import NINE, after

from harebell.domain.run_states import RunState
from harebell.runtime.clock import Clock
from harebell.ticker import completions
from harebell.ticker.completions import CompletionWatcher
from harebell.ticker.events import planning_events
from harebell.ticker.model.planning_window import PlanningStep
from harebell.ticker.plan_writer import SaveResult

TWICE = {"every": "30s", "start": "2026-11-20T09:00:00Z", "times": 2}
ONCE = {"at": "2026-11-20T09:00:00Z"}


class WatchedTicker(FakeTicker):
    """A fake ticker whose watcher observes every commit."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.planned: list[str] = []  # the events of planning
        self.clock = Clock(self._read_time)
        self.watcher = CompletionWatcher(
            pool=self.ledger, publisher=cast("Any", None), clock=self.clock
        )

    def on_saved(self, steps: Sequence[PlanningStep]) -> None:
        record = self.record
        self.planned += [
            event.verb for event in planning_events(SaveResult([], steps, [record]), self.now)
        ]
        self.watcher.observe([record])

    def end(self, time: datetime, state: RunState) -> None:
        self.claim(time, started=True)
        self.complete(time, state)

    async def events_after(self, seconds: float) -> list[tuple[str, str | None]]:
        """Wait, and return the verbs and the results of the new events of the watcher."""
        self.wait(seconds)
        await self.clock.refresh()
        events = await self.watcher.take_completed()
        return [(each.verb, each.event["data"].get("result")) for each in events]

    async def _read_time(self) -> datetime:
        return self.now


@pytest.mark.requirement("S06")
async def test_recurring_schedule_has_a_completed_event_after_the_end_of_its_last_run() -> None:
    ticker = WatchedTicker(NINE)
    ticker.put(TWICE)
    ticker.end(NINE, RunState.SUCCEEDED)
    ticker.wait(30).stage_all()
    ticker.claim(after(30), started=True)
    while_running = await ticker.events_after(30)
    ticker.complete(after(30), RunState.DEAD)

    after_end = await ticker.events_after(0)
    later = await ticker.events_after(0)

    assert "schedule.completed" not in ticker.planned
    assert (while_running, later) == ([], [])
    assert after_end == [("schedule.completed", "dead")]


@pytest.mark.requirement("S02")
async def test_one_shot_has_no_completed_event_besides_the_event_of_its_run() -> None:
    ticker = WatchedTicker(NINE)
    ticker.put(ONCE)
    ticker.end(NINE, RunState.SUCCEEDED)

    events = await ticker.events_after(60)

    assert "schedule.completed" not in ticker.planned
    assert events == []


async def test_schedule_is_not_watched_when_a_change_makes_it_active_again() -> None:
    ticker = WatchedTicker(NINE)
    ticker.put(TWICE)
    ticker.end(NINE, RunState.SUCCEEDED)
    ticker.wait(30).stage_all()
    ticker.put({**TWICE, "times": 9}, expected_version="any")
    ticker.end(after(30), RunState.SUCCEEDED)

    events = await ticker.events_after(10)

    assert events == []


async def test_watched_schedules_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completions, "MAX_WATCHED", 0)
    ticker = WatchedTicker(NINE)
    ticker.put({**TWICE, "times": 1})
    ticker.end(NINE, RunState.SUCCEEDED)

    events = await ticker.events_after(60)

    assert events == []
