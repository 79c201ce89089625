"""Many runs together: immediate runs, priorities, a flood of low runs and failing calls."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import mean, median
from typing import Any

import pytest
from tests.acceptance.faults import Pool, put_spread, until_called
from tests.acceptance.recording_target import Call, Target
from tests.acceptance.stack import Tenant, time_in
from tests.rig.polling import WAIT_TIMEOUT

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

RUNS_PER_SECOND = 20  # immediate runs, and as many scheduled runs
SECONDS = 5
MAX_START_DELAY = 2.0  # seconds from acceptance to the start of an immediate run, p99

BACKLOG = 36  # runs of each lane with one due time
SLOTS = {"HIGH": "12", "NORMAL": "8", "LOW": "2"}  # in the default proportions
PRIORITIES = {"high": 9, "normal": 5, "low": 2}
MIN_FACTOR = 5  # between the waits of a low run and of a high run

FLOOD, HIGH = 400, 60  # low runs with one due time, and high runs over some seconds
SLACK = 0.25  # seconds: of a median, on a machine that does other things

TOTAL, FAILING = 500, 50

Record = Callable[[str, object], None]


@pytest.mark.measures
@pytest.mark.requirement("S01")
async def test_immediate_run_starts_within_2_s_while_40_runs_start_each_second(
    tenant: Tenant, target: Target, record_property: Record
) -> None:
    count = RUNS_PER_SECOND * SECONDS
    await put_spread(tenant, target.http("timetable"), count, first=2, over=SECONDS)
    hook = target.http("at-once")

    async def put(number: int) -> str:
        await asyncio.sleep(2 + number / RUNS_PER_SECOND)
        return await tenant.put(f"at-once-{number}", {"now": True}, hook)

    ids = await asyncio.gather(*(put(number) for number in range(count)))
    await tenant.until_runs(2 * count, "succeeded", within=2 * WAIT_TIMEOUT)

    calls = target.calls("at-once")
    waits = sorted(
        call.late for call in calls
    )  # the scheduled time of an immediate run is its acceptance
    p50, p99 = waits[count // 2], waits[count * 99 // 100]
    record_property("waited", f"p50 {p50 * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms")
    assert Counter(call.schedule_id for call in calls) == Counter(ids)
    assert p99 < MAX_START_DELAY


async def put_backlog(tenant: Tenant, target: Target, pool: Pool) -> None:
    """Put runs with one due time, in an order that favours no lane."""
    when = {"at": time_in(3).isoformat()}
    schedules: list[dict[str, Any]] = [
        {
            "key": f"{lane}-{number}",
            "when": when,
            "priority": priority,
            "target": target.http(f"backlog-{lane}", sleep=1),
            "pool": pool.name,
        }
        for number in range(BACKLOG)
        for lane, priority in PRIORITIES.items()
    ]
    responses = await tenant.harebell.put_many(schedules)
    assert all(response.ok for response in responses)


def mean_wait(calls: Sequence[Call]) -> float:
    return mean(call.late for call in calls)


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("S21")
async def test_high_runs_wait_a_fifth_of_low_runs_when_every_lane_has_a_backlog(
    faulty_tenant: Tenant, pool: Pool, target: Target, record_property: Record
) -> None:
    slots = {f"HAREBELL_SLOTS_{lane}": slots for lane, slots in SLOTS.items()}
    await pool.start(1, **slots, HAREBELL_MAX_TARGET_SHARE="1")
    await put_backlog(faulty_tenant, target, pool)

    await faulty_tenant.until_runs(3 * BACKLOG, "succeeded", within=2 * WAIT_TIMEOUT)

    calls = {lane: target.calls(f"backlog-{lane}") for lane in PRIORITIES}
    waits = {lane: mean_wait(of_lane) for lane, of_lane in calls.items()}
    record_property("waited", ", ".join(f"{lane} {wait:.2f} s" for lane, wait in waits.items()))
    last_high = max(call.started_at for call in calls["high"])
    low_calls = sum(call.started_at < last_high for call in calls["low"])
    record_property("low runs before the last high run", f"{low_calls} of {BACKLOG}")
    assert waits["high"] < waits["normal"] < waits["low"]
    assert waits["high"] * MIN_FACTOR < waits["low"]
    assert low_calls >= 2
    assert {len(of_lane) for of_lane in calls.values()} == {BACKLOG}


async def put_high(tenant: Tenant, target: Target, pool: Pool, name: str) -> list[float]:
    """Put high runs, wait for all calls and return the lateness of each."""
    more: dict[str, Any] = {"prefix": name, "priority": 9, "pool": pool.name}
    await put_spread(tenant, target.http(name), HIGH, first=4, over=4, **more)
    return [call.late for call in await until_called(target, name, HIGH, within=2 * WAIT_TIMEOUT)]


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("S68")
async def test_flood_of_low_runs_does_not_delay_high_runs(
    faulty_tenant: Tenant, pool: Pool, target: Target, record_property: Record
) -> None:
    await pool.start(1)
    lateness_before = await put_high(faulty_tenant, target, pool, "calm")
    flood = {"when": {"at": time_in(3).isoformat()}, "priority": 2, "pool": pool.name}
    hook = target.http("flood", sleep=0.3)
    responses = await faulty_tenant.harebell.put_many(
        [{"key": f"low-{number}", "target": hook, **flood} for number in range(FLOOD)]
    )
    assert all(response.ok for response in responses)

    lateness_during = await put_high(faulty_tenant, target, pool, "busy")

    low = len(target.calls("flood"))
    record_property(
        "late",
        f"calm {median(lateness_before):.4f} s, in the flood {median(lateness_during):.4f} s",
    )
    assert 0 < low < FLOOD  # the flood lasted during all high runs
    assert median(lateness_during) < 2 * median(lateness_before) + SLACK
    await faulty_tenant.until_runs(FLOOD + 2 * HIGH, "succeeded", within=2 * WAIT_TIMEOUT)


@pytest.mark.requirement("S52")
@pytest.mark.long
async def test_exactly_the_runs_with_failed_calls_are_dead(tenant: Tenant, target: Target) -> None:
    targets = {False: target.http("well"), True: target.http("ill", fail=1)}
    fails = {f"one-{number}": number % (TOTAL // FAILING) == 3 for number in range(TOTAL)}
    schedules = [
        {
            "key": key,
            "when": {"after": "2s"},
            "target": targets[fails],
            "retry": {"max_attempts": 1},
        }
        for key, fails in fails.items()
    ]
    responses = await tenant.harebell.put_many(schedules)
    ids = {str(response.id): fails[str(response.key)] for response in responses if response.ok}

    dead = await tenant.until_runs(FAILING, "dead")
    succeeded = await tenant.until_runs(TOTAL - FAILING, "succeeded")

    assert {str(run["schedule_id"]) for run in dead} == {id_ for id_, fails in ids.items() if fails}
    assert {str(run["schedule_id"]) for run in succeeded} == {
        id_ for id_, fails in ids.items() if not fails
    }
    assert len(await tenant.runs()) == TOTAL
    assert {(run["attempt"], run["reason"]) for run in dead} == {(1, "attempts_exhausted")}
    assert [call.ok for call in target.calls("ill")] == [False] * FAILING
    assert [call.ok for call in target.calls("well")] == [True] * (TOTAL - FAILING)
