"""Rows 32 and 33: ten thousand runs at once, a backlog of an hour, changes at the due time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection
from datetime import datetime, timedelta
from typing import Any, Final

from tests.acceptance.recording_target import Call
from tests.acceptance.stack import Tenant, now, run_id, time_in
from tests.acceptance.test_race import FIRST_DUE, RACES_PER_TIME, SPACING, Race, run_all
from tests.chaos.environment import Environment
from tests.chaos.faults.registry import fault
from tests.chaos.result import FindingKind
from tests.rig.polling import until

from harebell.dev.plan import ServiceKind

BURST: Final = 10_000  # runs due in one second
PUT_BATCH: Final = 500  # schedules of one message
PUT_TIME: Final = 25.0  # seconds to put all of them
DRAIN_TIMEOUT: Final = 180.0  # seconds until all of them have run
BACKLOG: Final = timedelta(hours=1)
INTERVAL: Final = timedelta(seconds=40)
BACKLOG_SCHEDULES: Final = 50
RACES: Final = 200

_SUCCEEDED: Final = "SELECT count(*) FROM runs WHERE tenant = $1 AND state = 'succeeded'"
_RESET_PLANNING: Final = """
UPDATE schedule_state AS s
SET state = 'active', planned_until = $2::timestamptz - interval '1 millisecond', next_at = $2
FROM schedules AS d WHERE d.id = s.schedule_id AND d.tenant = $1
"""


@fault("32a", "ten thousand runs due in one second", recovery=DRAIN_TIMEOUT, is_heavy=True)
async def burst(environment: Environment) -> AsyncIterator[None]:
    path = f"{environment.tenant}-burst"
    async with environment.stack.tenant(path) as tenant:
        due = time_in(PUT_TIME)
        times = [due + timedelta(milliseconds=1000 * k // BURST) for k in range(BURST)]
        target = environment.target.http(path)
        bodies = [_once(f"one-{k}", time, target) for k, time in enumerate(times)]
        ids: list[str] = []
        for first in range(0, BURST, PUT_BATCH):
            responses = await tenant.harebell.put_many(bodies[first : first + PUT_BATCH])
            ids += [str(response.id) for response in responses if response.ok]
        expected = {run_id(id_, time) for id_, time in zip(ids, times, strict=True)}
        yield
        await _until_run(tenant, len(expected))
    _check(environment, path, expected)


@fault("32b", "a backlog of one hour of every schedule", recovery=DRAIN_TIMEOUT, is_heavy=True)
async def backlog(environment: Environment) -> AsyncIterator[None]:
    """Reset the planning of schedules to the state after an hour without a ticker."""
    path = f"{environment.tenant}-backlog"
    start = time_in(-BACKLOG.total_seconds())
    async with environment.stack.tenant(path) as tenant:
        when = {"every": f"{INTERVAL.seconds}s", "start": start.isoformat()}
        when["end"] = (now() + INTERVAL).isoformat()
        policy = {"catch_up": {"mode": "all", "window": "2h"}}
        ids = [
            await tenant.put(f"one-{k}", when, environment.target.http(path), **policy)
            for k in range(BACKLOG_SCHEDULES)
        ]
        for ticker in environment.members_of(ServiceKind.TICKER):
            await environment.kill(ticker)
        await tenant.ledger.execute(_RESET_PLANNING, path, start)
        yield
        await environment.start_all(environment.members_of(ServiceKind.TICKER))
        last = datetime.fromisoformat(when["end"])
        times = [start + k * INTERVAL for k in range((last - start) // INTERVAL + 1)]
        expected = {run_id(id_, time) for id_ in ids for time in times}
        await _until_run(tenant, len(expected))
    _check(environment, path, expected)


@fault("33", "cancelled, paused or changed at the due time", is_heavy=True)
async def races(environment: Environment) -> AsyncIterator[None]:
    async with environment.stack.tenant(f"{environment.tenant}-race") as tenant:
        first = time_in(FIRST_DUE)
        all_races = [
            Race(number, first + number // RACES_PER_TIME * SPACING) for number in range(RACES)
        ]
        racing = asyncio.create_task(run_all(all_races, tenant, environment.target))
        yield
        for finished in await racing:
            for text in finished.faults():
                environment.add_finding(FindingKind.AFTER_CANCEL, finished.race.key, text)


def _once(key: str, time: datetime, target: dict[str, Any]) -> dict[str, Any]:
    return {"key": key, "when": {"at": time.isoformat()}, "target": target}


async def _until_run(tenant: Tenant, count: int) -> None:
    """Wait for all runs, or until the timeout. The check finds the missing runs."""

    async def all_run() -> bool:
        succeeded: int = await tenant.ledger.fetchval(_SUCCEEDED, tenant.name)
        return succeeded >= count

    try:
        await until(all_run, within=DRAIN_TIMEOUT)
    except AssertionError:
        return


def _check(environment: Environment, path: str, expected: Collection[str]) -> None:
    calls = environment.target.calls(path)
    counts = Counter(call.run_id for call in calls)
    found = {
        FindingKind.MISSING: [run for run in expected if run not in counts],
        FindingKind.DUPLICATED: [run for run, count in counts.items() if count > 1],
        FindingKind.UNEXPECTED: [run for run in counts if run not in expected],
        FindingKind.EARLY: [call.run_id for call in calls if call.late < 0],
    }
    for kind, runs in found.items():
        if runs:
            text = f"{len(runs)} of {len(expected)} runs, {sorted(runs)[:3]}"
            environment.add_finding(kind, path, text)
    _measure(environment, calls)


def _measure(environment: Environment, calls: Collection[Call]) -> None:
    starts = sorted(call.started_at for call in calls)
    late = sorted(call.late for call in calls)
    if len(calls) > 1:
        environment.measurements |= {
            "burst_runs": len(calls),
            "burst_p50": _quantile(late, 0.5),
            "burst_p99": _quantile(late, 0.99),
            "burst_seconds": (starts[-1] - starts[0]).total_seconds(),
        }


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[int(share * (len(ordered) - 1))]
