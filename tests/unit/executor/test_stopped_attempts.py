"""An attempt that is asked to stop in the midst of its work ends as cancelled, with the reason."""

import asyncio
from datetime import timedelta
from typing import Any, cast

import pytest
from tests.fakes.tickets import NINE, ticket

from harebell.contract.amqp_names import Lane
from harebell.domain.run_states import Reason, RunState
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.model.completion import completion_of
from harebell.executor.running.starter import LaneStarter
from harebell.executor.running.target_bulkhead import TargetBulkhead
from harebell.executor.targets.attempt import AttemptOutcome, Stopped
from harebell.executor.targets.call import Targets
from harebell.runtime.clock import Clock, monotonic


class Endless:
    """A target that is called and does not return."""

    def __init__(self) -> None:
        self.called = asyncio.Event()

    async def call(self, *_: object) -> Any:
        self.called.set()
        await asyncio.Event().wait()


async def lane_of(task: Endless, settled: list[tuple[ClaimedRun, AttemptOutcome]]) -> LaneStarter:
    async def nine() -> Any:
        return NINE + timedelta(seconds=1)

    async def renew(_: ClaimedRun) -> bool:
        return True

    clock = Clock(nine)
    await clock.refresh()
    nothing = cast("Any", None)
    targets = Targets(nothing, nothing, cast("Any", task))
    return LaneStarter(
        *(Lane.NORMAL, 1, TargetBulkhead(1, 1), clock, targets, 0, renew),
        lambda run, outcome: settled.append((run, outcome)),
        lambda _: None,
        renew,
    )


@pytest.mark.parametrize("reason", [Reason.CANCELLED, Reason.REPLACED])
async def test_it_ends_cancelled_and_its_slot_is_free(reason: Reason) -> None:
    task, settled = Endless(), list[tuple[ClaimedRun, AttemptOutcome]]()
    lane = await lane_of(task, settled)
    run = ClaimedRun(ticket(), token=2, attempt=1, lease=15, renewed_at=monotonic())
    loop = asyncio.create_task(lane.run())
    lane.add([run])
    await task.called.wait()
    (attempt,) = lane.running.values()

    lane.stop(run.key, reason)
    lane.stop(run.key, reason)  # the next renewal says it again
    await asyncio.wait([attempt])

    assert settled == [(run, Stopped(reason))]
    assert lane.running == {}
    loop.cancel()


def test_on_the_record_it_is_an_attempt_that_was_cancelled() -> None:
    run = ClaimedRun(ticket(), token=2, attempt=1, lease=15, renewed_at=0, started_at=NINE)

    ended = completion_of(run, Stopped(Reason.REPLACED), None, NINE + timedelta(seconds=3))

    assert (ended.state, ended.outcome) == (RunState.CANCELLED, "cancelled")
    assert (ended.reason, ended.duration_ms) == ("replaced", 3000)
    assert ended.next_attempt_at is None
