"""Tests of the tenant bulkhead: the share of a lane, and the quota of a tenant in an executor."""

import asyncio

import pytest
from tests.fakes.lane import OTHER, TIMEOUT, LaneHarness
from tests.fakes.tickets import ticket

from harebell.executor.model.claimed_run import ClaimedRun
from harebell.executor.running.bulkheads import TenantAttempts, TenantBulkhead

ACME, UMBRELLA = "acme", "umbrella"


def lanes(quota: int | None = None) -> tuple[TenantBulkhead, TenantBulkhead]:
    """Return the bulkheads of two lanes of one executor."""
    attempts = TenantAttempts(quota=lambda _: quota)
    one, other = (TenantBulkhead(slots=4, max_share=0.75, attempts=attempts) for _ in range(2))
    return one, other


@pytest.mark.requirement("P6")
def test_tenant_has_no_capacity_after_it_uses_its_share_of_a_lane() -> None:
    lane, other_lane = lanes()
    for _ in range(3):
        lane.start(ACME)

    assert not lane.has_capacity(ACME)
    assert lane.has_capacity(UMBRELLA)
    assert other_lane.has_capacity(ACME)


@pytest.mark.requirement("P11")
def test_quota_counts_the_attempts_of_a_tenant_in_all_lanes() -> None:
    lane, other_lane = lanes(quota=2)
    lane.start(ACME)
    other_lane.start(ACME)

    assert not lane.has_capacity(ACME)
    assert lane.has_capacity(UMBRELLA)
    other_lane.finish(ACME, 1)
    assert lane.has_capacity(ACME)


def test_end_of_an_attempt_resumes_the_runs_that_the_quota_deferred_in_every_lane() -> None:
    lane, other_lane = lanes(quota=1)
    resumed: list[str] = []
    lane.attempts.watch(resumed.append)
    lane.start(ACME)
    lane.finish(ACME, 1)
    without_deferral = list(resumed)

    lane.start(ACME)
    other_lane.has_capacity(ACME)
    lane.finish(ACME, 1)

    assert (without_deferral, resumed) == ([], [ACME])


def of_tenant(run: ClaimedRun, tenant: str) -> ClaimedRun:
    run_spec = run.ticket.run_spec.model_copy(update={"tenant": tenant})
    run.ticket = run.ticket.model_copy(update={"run_spec": run_spec})
    return run


@pytest.mark.requirement("P6")
async def test_hanging_runs_of_a_tenant_use_its_share_and_another_tenant_starts_at_once() -> None:
    """The hanging runs call two targets, each of which has a free slot of its own."""
    lane = await LaneHarness.create(4, max_share=0.5, tenant_share=0.75)
    hanging = [lane.claimed(number) for number in range(1, 21)]
    hanging += [lane.claimed(number, task=OTHER) for number in range(21, 61)]
    victim = of_tenant(lane.claimed(61, 0.01, task=OTHER), UMBRELLA)

    async with lane.running():
        lane.starter.add(hanging)
        await lane.wait_for(3, lane.task.started)
        lane.starter.add([victim])
        await lane.wait_for(4, lane.task.started)
        async with asyncio.timeout(TIMEOUT):
            while not (saturated := lane.starter.saturated_tenants()):  # noqa: ASYNC110  # no event
                await asyncio.sleep(0)
        lane.task.released.set()
        await lane.wait_for(61, lane.completed)

    assert lane.task.numbers[3] == 61
    assert set(saturated) == {ticket().run_spec.tenant}
    assert sorted(lane.task.numbers) == list(range(1, 62))
    assert lane.starter.saturated_tenants() == {}


@pytest.mark.requirement("P11")
async def test_quota_of_concurrent_runs_holds_in_a_lane_and_every_run_starts() -> None:
    lane = await LaneHarness.create(4, quota=2)

    async with lane.running():
        lane.starter.add([lane.claimed(number) for number in range(1, 11)])
        await lane.wait_for(2, lane.task.started)
        victim = of_tenant(lane.claimed(11, 0.01, task=OTHER), UMBRELLA)
        lane.starter.add([victim])
        await lane.wait_for(3, lane.task.started)
        lane.task.released.set()
        await lane.wait_for(11, lane.completed)

    assert lane.task.numbers[2] == 11
