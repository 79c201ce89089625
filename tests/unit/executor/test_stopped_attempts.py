"""Unit tests of attempts that a stop request cancels."""

import asyncio
from datetime import timedelta

import pytest
from tests.fakes.lane import LaneHarness
from tests.fakes.tickets import NINE, ticket

from harebell.domain.run_states import Reason, RunState
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.model.completion import completion_of
from harebell.executor.targets.attempt import Stopped


@pytest.mark.parametrize("reason", [Reason.CANCELLED, Reason.REPLACED])
async def test_stopped_attempt_is_completed_once_and_its_slot_is_free(reason: Reason) -> None:
    lane = await LaneHarness.create(1)
    run = lane.claimed(1)

    async with lane.running():
        lane.starter.add([run])
        await lane.wait_for(1, lane.task.started)
        (attempt,) = lane.starter.running.values()
        lane.starter.stop(run.key, reason)
        lane.starter.stop(run.key, reason)  # as the next renewal does
        await asyncio.wait([attempt])

        assert lane.completed == [(run, Stopped(reason))]
        assert lane.starter.running == {}


def test_completion_of_a_stopped_attempt_is_cancelled_with_the_reason() -> None:
    run = ClaimedRun(ticket=ticket(), token=2, attempt=1, lease=15, renewed_at=0, started_at=NINE)

    completion = completion_of(run, Stopped(Reason.REPLACED), None, now=NINE + timedelta(seconds=3))

    assert (completion.state, completion.outcome) == (RunState.CANCELLED, "cancelled")
    assert (completion.reason, completion.duration_ms) == ("replaced", 3000)
    assert completion.next_attempt_at is None
