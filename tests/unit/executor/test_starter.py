"""Unit tests of the start of claimed runs: at the due time, within the slots and the lease."""

import asyncio
import sys
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
import uvloop
from tests.fakes.lane import ECHO, OTHER, LaneHarness

from harebell.bootstrap.process import create_eager_task
from harebell.contract.policy import RateLimit, RateLimitScope
from harebell.domain.retry import EXPIRED, Failure
from harebell.domain.run_states import start_rank
from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.model.start_queue import BATCHED_START_THRESHOLD, StartQueue
from harebell.executor.running.bulkheads import (
    MAX_UNSTARTED,
    MAX_UNSTARTED_WHEN_LATE,
    MIN_SAMPLES,
)
from harebell.executor.running.starter import (
    EARLIEST_RANK,
    LATE_AFTER,
    MAX_DEFERRED_FACTOR,
    MAX_STARTS_PER_ITERATION,
)
from harebell.executor.targets.attempt import Success
from harebell.runtime.clock import monotonic

TIMEOUT = 5.0  # seconds


@pytest.fixture
async def lane() -> LaneHarness:
    """Return a lane with two slots."""
    return await LaneHarness.create(2)


def completed_by_number(lane: LaneHarness) -> dict[int, ClaimedRun]:
    runs = [run for run, _ in lane.completed]
    return {len(run.ticket.run_spec.target.task.args["filling"]): run for run in runs}  # type: ignore[union-attr]  # every target here is a task


@pytest.mark.requirement("S02")
async def test_run_never_starts_before_its_due_time(lane: LaneHarness) -> None:
    lane.task.released.set()
    runs = [lane.claimed(number, 0.02 * number) for number in range(1, 9)]

    async with lane.running():
        lane.starter.add(runs)
        await lane.wait_for(8, lane.completed)

    by_number = completed_by_number(lane)
    assert all(at >= by_number[number].ticket.due_at for number, at in lane.task.started)
    assert sorted(lane.task.numbers) == list(range(1, 9))


@pytest.mark.requirement("S67")
async def test_lane_never_runs_more_attempts_than_slots(lane: LaneHarness) -> None:
    async with lane.running():
        lane.starter.add([lane.claimed(number) for number in range(1, 7)])
        await lane.wait_for(2, lane.task.started)
        lane.task.released.set()
        await lane.wait_for(6, lane.completed)

    assert lane.task.max_running == 2
    assert all(isinstance(outcome, Success) for _, outcome in lane.completed)


async def test_lane_never_runs_more_attempts_than_slots_for_several_targets_and_tenants(
    lane: LaneHarness,
) -> None:
    """The share of a target and the share of a tenant would each allow a third attempt."""
    runs = [
        lane.claimed(n, task=OTHER if n % 2 else ECHO, tenant="acme" if n % 2 else "umbrella")
        for n in range(1, 9)
    ]

    async with lane.running():
        lane.starter.add(runs)
        await lane.wait_for(2, lane.task.started)
        lane.task.released.set()
        await lane.wait_for(8, lane.completed)

    assert lane.task.max_running == 2


@pytest.mark.requirement("S67")
async def test_second_claim_of_a_run_uses_its_own_slot_while_the_first_attempt_runs(
    lane: LaneHarness,
) -> None:
    first = lane.claimed(1)
    second = replace(first, token=first.token + 2, attempt=2)

    async with lane.running():
        lane.starter.add([first, second, lane.claimed(2)])
        await lane.wait_for(2, lane.task.started)
        running = dict(lane.starter.running)
        lane.task.released.set()
        await lane.wait_for(3, lane.completed)

    assert set(running) == {first, second}
    assert (lane.task.max_running, lane.task.numbers) == (2, [1, 1, 2])
    assert lane.starter.running == {}


async def test_lane_starts_few_runs_in_one_iteration_of_the_loop() -> None:
    lane = await LaneHarness.create(100)
    starts = []

    async with lane.running():
        lane.starter.add([lane.claimed(number) for number in range(1, 41)])
        async with asyncio.timeout(TIMEOUT):
            while (before := len(lane.task.started)) < 40:
                await asyncio.sleep(0)
                starts.append(len(lane.task.started) - before)
        lane.task.released.set()
        await lane.wait_for(40, lane.completed)

    assert max(starts) == MAX_STARTS_PER_ITERATION


async def test_many_waiting_runs_start_within_milliseconds_and_never_early() -> None:
    count = BATCHED_START_THRESHOLD * 2
    lane = await LaneHarness.create(count)
    lane.task.released.set()
    runs = [lane.claimed(number, 0.05 + 0.0003 * number) for number in range(1, count + 1)]

    async with lane.running():
        lane.starter.add(runs)
        await lane.wait_for(count, lane.completed)

    by_number = completed_by_number(lane)
    lateness = sorted(at - by_number[number].ticket.due_at for number, at in lane.task.started)
    assert lateness[0] >= timedelta(0)
    median = lateness[BATCHED_START_THRESHOLD]
    assert median < timedelta(seconds=0.1)  # on a busy machine


@pytest.mark.skipif(sys.version_info < (3, 12), reason="has no eager tasks")
async def test_deferred_runs_start_when_eager_attempts_end_at_once() -> None:
    asyncio.get_running_loop().set_task_factory(create_eager_task)
    lane = await LaneHarness.create(4, max_share=0.75)

    async with lane.running():
        lane.starter.add([lane.claimed(number) for number in range(1, 41)])
        await lane.wait_for(3, lane.task.started)
        lane.task.released.set()  # from now on each attempt ends in `create_task`
        await lane.wait_for(40, lane.completed)

    assert lane.starter.queue.of_targets.counts() == {}


class CountingStartQueue(StartQueue):
    """A start queue that counts the calls of `next_due`."""

    calls = 0

    def next_due(self) -> datetime | None:
        self.calls += 1
        return super().next_due()


def test_lane_wakes_seldom_when_many_runs_wait() -> None:
    """Run on uvloop, the loop of the services, which has timers of whole milliseconds."""
    count = BATCHED_START_THRESHOLD * 2  # starts, while at least as many other runs wait
    spacing = 0.0004  # seconds, which is shorter than a timer

    async def count_calls() -> int:
        lane = await LaneHarness.create(count * 2)
        lane.starter.queue = queue = CountingStartQueue()
        lane.task.released.set()
        async with lane.running():
            lane.starter.add([lane.claimed(n, 0.1 + spacing * n) for n in range(count * 2)])
            await lane.wait_for(count, lane.task.started)
            return queue.calls

    assert count < uvloop.run(count_calls()) < 5 * count


async def test_hanging_target_uses_its_share_of_the_slots_and_other_targets_continue() -> None:
    lane = await LaneHarness.create(4, max_share=0.75)
    hanging = [lane.claimed(number) for number in range(1, 41)]
    quick = [lane.claimed(number, 0.01, task=OTHER) for number in range(41, 44)]

    async with lane.running():
        lane.starter.add(hanging)
        await lane.wait_for(3, lane.task.started)
        async with asyncio.timeout(TIMEOUT):
            while not (saturated := lane.starter.saturated_targets()):  # noqa: ASYNC110  # no event
                await asyncio.sleep(0)
        lane.starter.add(quick)
        await lane.wait_for(4, lane.task.started)
        lane.task.released.set()
        await lane.wait_for(43, lane.completed)

    assert lane.task.numbers[:4] == [1, 2, 3, 41]
    assert set(saturated) == {"default task:harebell.echo"}
    assert lane.starter.capacity() > 0
    assert sorted(lane.task.numbers) == list(range(1, 44))
    assert lane.starter.saturated_targets() == {}


@pytest.mark.requirement("S21")
async def test_free_slot_goes_to_the_due_run_with_the_highest_priority() -> None:
    lane = await LaneHarness.create(1)
    lane.task.released.set()
    due_at = lane.claimed(1).ticket.due_at
    runs = [lane.claimed(number, priority=number) for number in (4, 6, 5, 7)]
    for run in runs:
        run.ticket = run.ticket.model_copy(update={"due_at": due_at})

    async with lane.running():
        lane.starter.add(runs)
        await lane.wait_for(4, lane.completed)

    assert lane.task.numbers == [7, 6, 5, 4]


@pytest.mark.requirement("S21", "S43")
async def test_free_slot_goes_to_a_later_run_of_a_higher_priority_when_both_are_due() -> None:
    lane = await LaneHarness.create(1)
    lane.task.released.set()
    low = [lane.claimed(number, -1 + 0.01 * number, priority=4) for number in range(1, 6)]
    high = [lane.claimed(number, -0.01 * number, priority=7) for number in range(6, 9)]
    early = lane.claimed(9, 60, priority=7)

    async with lane.running():
        lane.starter.add([*low, early, *high])
        await lane.wait_for(8, lane.completed)

    assert lane.task.numbers == [8, 7, 6, 1, 2, 3, 4, 5]


@pytest.mark.requirement("S21", "S43")
async def test_late_run_starts_before_later_runs_of_a_higher_priority() -> None:
    lane = await LaneHarness.create(1)
    lane.task.released.set()
    late = lane.claimed(1, -11, priority=1)
    high = [lane.claimed(number, -0.1 * number, priority=3) for number in range(2, 6)]

    async with lane.running():
        lane.starter.add([*high, late])
        await lane.wait_for(5, lane.completed)

    assert lane.task.numbers == [1, 5, 4, 3, 2]


@pytest.mark.requirement("S21", "S67")
async def test_lane_is_late_when_its_first_run_is_punctual_and_another_run_is_late() -> None:
    lane = await LaneHarness.create(1)
    for _ in range(MIN_SAMPLES):
        lane.starter._throughput.record(0.0)  # noqa: SLF001  # as quick attempts do
    lane.starter.add([lane.claimed(1, -1, priority=4), lane.claimed(2, priority=7)])

    assert lane.starter.capacity() == MAX_UNSTARTED_WHEN_LATE - 2
    assert lane.starter.urgent_capacity() == 2 * MAX_UNSTARTED_WHEN_LATE - 2


@pytest.mark.requirement("S21", "S68")
async def test_more_urgent_tickets_of_a_saturated_target_are_still_claimed() -> None:
    lane = await LaneHarness.create(4, max_share=0.75)
    low = [lane.claimed(number, priority=4) for number in range(1, 41)]

    async with lane.running():
        lane.starter.add(low)
        await lane.wait_for(3, lane.task.started)
        async with asyncio.timeout(TIMEOUT):
            while not (saturated := lane.starter.saturated_targets()):  # noqa: ASYNC110  # no event
                await asyncio.sleep(0)
        (least,) = saturated.values()
        tickets = [lane.claimed(number, priority=number).ticket for number in (4, 7)]
        urgent = [start_rank(each.due_at, each.priority) < least for each in tickets]
        lane.starter.add([lane.claimed(50, priority=7)])
        lane.task.released.set()
        await lane.wait_for(41, lane.completed)

    assert urgent == [False, True]
    assert lane.task.numbers.index(50) == 3


async def test_lane_claims_no_ticket_of_a_target_with_the_most_deferred_runs() -> None:
    lane = await LaneHarness.create(4, max_share=0.75)
    enough = 30  # 3 slots with attempts of half a second for the time of a requeue
    count = 3 + MAX_DEFERRED_FACTOR * enough

    async with lane.running():
        lane.starter.add([lane.claimed(number, priority=4) for number in range(count + 10)])
        async with asyncio.timeout(TIMEOUT):
            while sum(lane.starter.queue.of_targets.counts().values()) < count:  # noqa: ASYNC110  # no event
                await asyncio.sleep(0)
        saturated = lane.starter.saturated_targets()
        lane.task.released.set()
        await lane.wait_for(count + 10, lane.completed)

    assert saturated == {"default task:harebell.echo": EARLIEST_RANK}


async def test_later_run_does_not_delay_an_earlier_run_that_is_claimed_after_it(
    lane: LaneHarness,
) -> None:
    lane.task.released.set()

    async with lane.running():
        lane.starter.add([lane.claimed(1, 60)])
        lane.starter.add([lane.claimed(2, 0.01)])
        await lane.wait_for(1, lane.completed)
        lane.starter.queue.pop(lane.clock.now)

    assert lane.task.numbers == [2]


@pytest.mark.requirement("S89", "S92", "ASK-14")
async def test_run_never_starts_after_the_end_of_its_lease(lane: LaneHarness) -> None:
    lane.leases.rejections = 1000

    async with lane.running():
        lane.starter.add([lane.claimed(1, lease=1, lease_age=1.01)])
        await lane.wait_for(1, lane.claimed_runs.removed)

    assert (lane.task.started, lane.completed) == ([], [])


@pytest.mark.requirement("S92")
async def test_run_with_an_old_lease_is_renewed_before_its_start(lane: LaneHarness) -> None:
    lane.task.released.set()

    async with lane.running():
        lane.starter.add([lane.claimed(1, lease_age=3), lane.claimed(2)])
        await lane.wait_for(2, lane.completed)

    assert lane.leases.renewals == 1


@pytest.mark.requirement("S92")
async def test_run_never_starts_when_each_renewal_is_rejected_until_its_lease_ends(
    lane: LaneHarness,
) -> None:
    lane.leases.rejections = 1000

    async with lane.running():
        lane.starter.add([lane.claimed(1, lease=3.2, lease_age=3)])
        await lane.wait_for(1, lane.claimed_runs.removed)

    assert lane.leases.renewals > 1
    assert lane.task.started == []


async def test_run_starts_after_a_later_renewal_when_its_row_was_only_locked(
    lane: LaneHarness,
) -> None:
    lane.task.released.set()
    lane.leases.rejections = 2

    async with lane.running():
        lane.starter.add([lane.claimed(1, lease_age=3)])
        await lane.wait_for(1, lane.completed)

    assert (lane.leases.renewals, lane.task.numbers) == (3, [1])


async def test_expired_run_does_not_start_and_is_not_retried(lane: LaneHarness) -> None:
    async with lane.running():
        lane.starter.add([lane.claimed(1, expires_in=0)])
        await lane.wait_for(1, lane.completed)

    ((_, outcome),) = lane.completed
    assert lane.task.started == []
    assert isinstance(outcome, Failure)
    assert (outcome.code, outcome.retryable) == (EXPIRED, False)


@pytest.mark.parametrize("is_eager", [False, True])
async def test_claim_is_removed_when_an_attempt_raises_an_unexpected_error(
    lane: LaneHarness, *, is_eager: bool
) -> None:
    if is_eager and sys.version_info >= (3, 12):
        asyncio.get_running_loop().set_task_factory(create_eager_task)
    run = lane.claimed(1, lease_age=3)
    lane.leases.error = ZeroDivisionError()

    async with lane.running():
        lane.starter.add([run])
        await lane.wait_for(1, lane.claimed_runs.removed)

    assert lane.claimed_runs.removed == [run]
    assert (lane.task.started, lane.completed, lane.starter.running) == ([], [], {})


@pytest.mark.requirement("S56")
async def test_no_run_starts_until_the_clock_is_steady(lane: LaneHarness) -> None:
    lane.clock.stepped_at = monotonic()

    async with lane.running():
        lane.starter.add([lane.claimed(1)])
        lane.starter.add([lane.claimed(2)])
        await asyncio.wait([asyncio.create_task(lane.task.changed.wait())], timeout=0.1)

    assert lane.task.started == []


@pytest.mark.requirement("S73")
async def test_closed_lane_starts_nothing_more_and_finishes_the_running_attempts(
    lane: LaneHarness,
) -> None:
    async with lane.running():
        lane.starter.add([lane.claimed(1), lane.claimed(2), lane.claimed(3)])
        await lane.wait_for(2, lane.task.started)
        lane.starter.close()
        lane.task.released.set()
        await lane.wait_for(2, lane.completed)

    assert sorted(lane.task.numbers) == [1, 2]
    assert len(lane.starter.queue.waiting()) == 1


async def test_drain_cancels_attempts_that_do_not_end_in_time(lane: LaneHarness) -> None:
    async with lane.running():
        lane.starter.add([lane.claimed(1)])
        await lane.wait_for(1, lane.task.started)
        await lane.starter.drain(0.01)

    assert (lane.completed, lane.starter.running) == ([], {})


async def test_capacity_is_low_while_a_run_is_late(lane: LaneHarness) -> None:
    for _ in range(MIN_SAMPLES):
        lane.starter._throughput.record(0.0)  # noqa: SLF001  # as quick attempts do
    before = lane.starter.capacity()

    lane.starter.add([lane.claimed(1, -2 * LATE_AFTER)])

    capacities = (before, lane.starter.capacity())
    assert capacities == (MAX_UNSTARTED, MAX_UNSTARTED_WHEN_LATE - 1)


async def test_waiting_runs_reduce_the_capacity(lane: LaneHarness) -> None:
    before, changed = lane.starter.capacity(), lane.starter.watch_capacity()

    lane.starter.add([lane.claimed(number, 60) for number in (1, 2, 3)])

    assert (before, lane.starter.capacity()) == (2, 0)
    assert not changed.is_set()


async def test_removed_runs_increase_the_capacity(lane: LaneHarness) -> None:
    runs = [lane.claimed(number, 60) for number in (1, 2, 3)]
    lane.starter.add(runs)
    changed = lane.starter.watch_capacity()

    removed = lane.starter.remove_unstarted({run.key for run in runs})

    assert removed == runs
    assert lane.starter.capacity() == 2
    assert changed.is_set()


@dataclass
class FakeRateLimiter:
    """A rate limiter that admits the run or not. The admission can outlast the lease of the run."""

    is_allowed: bool
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def admit(self, run: ClaimedRun) -> bool:
        run.renewed_at = float("-inf")
        self.asked.set()
        return self.is_allowed


def rate_limited(lane: LaneHarness, limiter: FakeRateLimiter) -> ClaimedRun:
    """Return a run whose rate limit the limiter decides."""
    run = lane.claimed(1)
    limit = RateLimit(per=RateLimitScope.SCHEDULE, starts=1, within=timedelta(seconds=1))
    spec = run.ticket.run_spec.model_copy(update={"rate_limit": limit})
    run.ticket = run.ticket.model_copy(update={"run_spec": spec})
    lane.attempts.rate_limiter = cast("Any", limiter)
    return run


async def test_run_never_starts_when_its_lease_ends_during_its_admission(
    lane: LaneHarness,
) -> None:
    run = rate_limited(lane, FakeRateLimiter(is_allowed=True))

    async with lane.running():
        lane.starter.add([run])
        await lane.wait_for(1, lane.claimed_runs.removed)

    assert lane.task.started == []
    assert lane.claimed_runs.removed == [run]


async def test_run_never_starts_without_the_admission_of_its_rate_limit(lane: LaneHarness) -> None:
    limiter = FakeRateLimiter(is_allowed=False)
    run = rate_limited(lane, limiter)

    async with lane.running():
        lane.starter.add([run])
        async with asyncio.timeout(TIMEOUT):
            await limiter.asked.wait()
        await asyncio.gather(*lane.starter.running.values())

    assert lane.task.started == []
    assert lane.claimed_runs.removed == []  # the limiter removes the run
