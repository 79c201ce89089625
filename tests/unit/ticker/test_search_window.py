"""The window of the searches for open runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, cast

import pytest
from tests.fakes.tickets import NINE

from harebell.runtime.clock import Clock
from harebell.storage.runs.recovery import ALL_OPEN_RUNS, SearchScope
from harebell.ticker.read_pauses import MAX_SHARE
from harebell.ticker.recovery import search_window
from harebell.ticker.recovery.search_window import (
    DAY,
    MAX_READ_INTERVAL,
    MIN_READ_INTERVAL,
    RECENT,
    SearchWindow,
)

HOUR = timedelta(hours=1)
NEAR = {f"runs_{NINE + days * DAY:%Y%m%d}" for days in (-1, 0, 1)}


@dataclass(kw_only=True)
class OpenRuns:
    """The due times of the open runs by day, and reads that take some seconds."""

    seconds: float = 1000.0  # of the monotonic clock
    took: float = 0.01
    error: type[Exception] | None = None
    first_due: dict[date, datetime] = field(default_factory=dict)
    reads: int = 0

    async def fetch(self, _statement: str, *_: object) -> Sequence[dict[str, Any]]:
        self.reads += 1
        self.seconds += self.took
        if self.error is not None:
            raise self.error
        return [{"day": day, "first_due_at": at} for day, at in self.first_due.items()]

    def now(self) -> datetime:
        return NINE


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> OpenRuns:
    found = OpenRuns()
    monkeypatch.setattr(search_window, "monotonic", lambda: found.seconds)
    return found


@pytest.fixture
def window(runs: OpenRuns) -> SearchWindow:
    return SearchWindow(pool=runs, clock=cast("Clock", runs))


async def test_window_has_the_recent_runs_of_the_days_around_now(window: SearchWindow) -> None:
    assert await window.scope() == SearchScope(NINE - RECENT, frozenset(NEAR))


async def test_window_has_every_run_that_is_open(runs: OpenRuns, window: SearchWindow) -> None:
    week_ago = NINE - 7 * DAY
    runs.first_due = {NINE.date(): NINE - 2 * HOUR, week_ago.date(): NINE - HOUR}

    scope = await window.scope()

    assert scope == SearchScope(NINE - 2 * HOUR, frozenset({*NEAR, f"runs_{week_ago:%Y%m%d}"}))


@pytest.mark.parametrize(
    ("took", "wait"),
    [
        (0.01, MIN_READ_INTERVAL),
        (MAX_SHARE * 20, 20.0),
        (MAX_SHARE * 99, MAX_READ_INTERVAL),
    ],
)
async def test_long_read_is_repeated_after_its_share_of_the_time(
    runs: OpenRuns, window: SearchWindow, took: float, wait: float
) -> None:
    runs.took = took
    await window.scope()
    ended_at = runs.seconds

    runs.seconds = ended_at + wait - 0.1
    await window.scope()
    before = runs.reads
    runs.seconds = ended_at + wait
    await window.scope()

    assert (before, runs.reads) == (1, 2)


async def test_failed_read_is_repeated_later_and_leaves_the_window(
    runs: OpenRuns, window: SearchWindow
) -> None:
    before = await window.scope()
    runs.seconds += MIN_READ_INTERVAL
    runs.error = TimeoutError
    with pytest.raises(TimeoutError):
        await window.scope()

    assert await window.scope() == before
    assert runs.reads == 2


async def test_every_run_is_searched_before_the_first_read(
    runs: OpenRuns, window: SearchWindow
) -> None:
    runs.error = TimeoutError
    with pytest.raises(TimeoutError):
        await window.scope()

    assert await window.scope() == ALL_OPEN_RUNS
