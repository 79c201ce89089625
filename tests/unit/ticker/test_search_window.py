"""The window of a repeated search for open runs."""

from datetime import datetime

import pytest
from tests.fakes.tickets import NINE

from harebell.contract.types import EARLIEST
from harebell.ticker.recovery import search_window
from harebell.ticker.recovery.search_window import (
    MAX_FULL_INTERVAL,
    MAX_SHARE,
    RECENT,
    SearchWindow,
)


class Machine:
    """A monotonic clock, and searches that take a given number of seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1000.0
        monkeypatch.setattr(search_window, "monotonic", lambda: self.seconds)

    def search(self, window: SearchWindow, *, took: float, fails: bool = False) -> datetime:
        with window.search(NINE) as since:
            self.seconds += took
            if fails:
                raise TimeoutError
        return since


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_fast_search_has_all_due_times_each_second(machine: Machine) -> None:
    window = SearchWindow()

    found = []
    for _ in range(5):
        found.append(machine.search(window, took=0.01))
        machine.seconds += 1

    assert found == [EARLIEST] * 5


def test_slow_full_search_is_repeated_after_its_share_of_the_time(machine: Machine) -> None:
    window = SearchWindow()
    machine.search(window, took=0.5)

    machine.seconds += 0.5 / MAX_SHARE - 0.1
    before = machine.search(window, took=0)
    machine.seconds += 0.2
    after = machine.search(window, took=0)

    assert (before, after) == (NINE - RECENT, EARLIEST)


def test_full_search_is_repeated_within_the_longest_interval(machine: Machine) -> None:
    window = SearchWindow()
    machine.search(window, took=9)

    machine.seconds += MAX_FULL_INTERVAL

    assert machine.search(window, took=0) == EARLIEST


def test_failed_full_search_is_followed_by_a_recent_one(machine: Machine) -> None:
    window = SearchWindow()
    with pytest.raises(TimeoutError):
        machine.search(window, took=10, fails=True)

    assert machine.search(window, took=0) == NINE - RECENT
