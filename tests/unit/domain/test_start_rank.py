"""Unit tests of the start rank: priorities, and the lateness that outweighs them."""

import pytest
from tests.fakes.tickets import NINE, after

from harebell.domain.run_states import start_rank


@pytest.mark.requirement("S21", "S43")
def test_higher_priority_has_the_lower_rank_when_both_runs_are_due_together() -> None:
    ranks = [start_rank(NINE, priority) for priority in range(10, 0, -1)]

    assert ranks == sorted(ranks)
    assert len(set(ranks)) == 10


@pytest.mark.requirement("S43")
def test_earlier_run_has_the_lower_rank_when_the_priorities_are_equal() -> None:
    assert start_rank(NINE, 5) < start_rank(after(0.001), 5)


@pytest.mark.requirement("S21", "S43")
@pytest.mark.parametrize("steps", [1, 3, 9])
def test_run_gains_one_priority_step_in_five_seconds_of_lateness(steps: int) -> None:
    low = start_rank(NINE, 1)

    assert start_rank(after(5 * steps - 0.001), 1 + steps) < low
    assert start_rank(after(5 * steps + 0.001), 1 + steps) > low
