"""Rows 32 and 33: ten thousand at once, an hour's backlog, changes around the instant of due."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection
from datetime import datetime, timedelta
from typing import Any, Final

from tests.acceptance.recording_target import Call
from tests.acceptance.stack import Tenant, time_in, now, run_id, until
from tests.acceptance.test_race import AHEAD, AT_ONCE, SPACING, Race, run_all
from tests.chaos.environment import Scene
from tests.chaos.faults.registry import fault
from tests.chaos.result import Kind

from harebell.dev.plan import ServiceKind as Service

HERD: Final = 10_000  # runs due in one second
PORTION: Final = 500  # schedules of one message
MUSTER: Final = 25.0  # seconds to put them all
DRAIN: Final = 180.0  # seconds for all of them to have run
BACKLOG: Final = timedelta(hours=1)
PACE: Final = timedelta(seconds=40)
MANY: Final = 50  # schedules with that backlog
RACES: Final = 200

_LEFT: Final = "SELECT count(*) FROM runs WHERE tenant = $1 AND state = 'succeeded'"
_FORGET: Final = """
UPDATE schedule_state AS s
SET state = 'active', planned_until = $2::timestamptz - interval '1 millisecond', next_at = $2
FROM schedules AS d WHERE d.id = s.schedule_id AND d.tenant = $1
"""


@fault("32a", "ten thousand due in one second", recovery=DRAIN, alone=True)
async def herd(scene: Scene) -> AsyncIterator[None]:
    path = f"{scene.tenant}-herd"
    async with scene.stack.tenant(path) as tenant:
        due = time_in(MUSTER)
        moments = [due + timedelta(milliseconds=1000 * k // HERD) for k in range(HERD)]
        bodies = [_once(f"one-{k}", moment, scene, path) for k, moment in enumerate(moments)]
        ids: list[str] = []
        for first in range(0, HERD, PORTION):
            answers = await tenant.harebell.put_many(bodies[first : first + PORTION])
            ids += [str(answer.id) for answer in answers if answer.ok]
        owed = {run_id(id_, moment) for id_, moment in zip(ids, moments, strict=True)}
        yield
        await _until_run(tenant, len(owed))
    _judge(scene, path, owed)


@fault("32b", "an hour's backlog of every schedule", recovery=DRAIN, alone=True)
async def backlog(scene: Scene) -> AsyncIterator[None]:
    """As if no ticker had looked for an hour: what has been decided of it is forgotten."""
    path = f"{scene.tenant}-backlog"
    start = time_in(-BACKLOG.total_seconds())
    async with scene.stack.tenant(path) as tenant:
        when = {"every": f"{PACE.seconds}s", "start": start.isoformat()}
        when["end"] = (now() + PACE).isoformat()
        policy = {"catch_up": {"mode": "all", "window": "2h"}}
        ids = [
            await tenant.put(f"one-{k}", when, scene.target.http(path), **policy)
            for k in range(MANY)
        ]
        for ticker in scene.all_of(Service.TICKER):
            await scene.kill(ticker)
        await tenant.ledger.execute(_FORGET, path, start)
        yield
        await scene.start_all(scene.all_of(Service.TICKER))
        last = datetime.fromisoformat(when["end"])
        moments = [start + k * PACE for k in range((last - start) // PACE + 1)]
        owed = {run_id(id_, moment) for id_ in ids for moment in moments}
        await _until_run(tenant, len(owed))
    _judge(scene, path, owed)


@fault("33", "cancelled, paused or changed at the instant of due", alone=True)
async def races(scene: Scene) -> AsyncIterator[None]:
    async with scene.stack.tenant(f"{scene.tenant}-race") as tenant:
        first = time_in(AHEAD)
        drawn = [Race(number, first + number // AT_ONCE * SPACING) for number in range(RACES)]
        racing = asyncio.create_task(run_all(drawn, tenant, scene.target))
        yield
        for finish in await racing:
            for wrong in finish.wrongs():
                scene.find(Kind.AFTER_CANCEL, finish.race.key, wrong)


def _once(key: str, moment: datetime, scene: Scene, path: str) -> dict[str, Any]:
    return {"key": key, "when": {"at": moment.isoformat()}, "target": scene.target.http(path)}


async def _until_run(tenant: Tenant, count: int) -> None:
    """Or until that takes too long: the judge says what is missing."""

    async def all_run() -> bool:
        done: int = await tenant.ledger.fetchval(_LEFT, tenant.name)
        return done >= count

    try:
        await until(all_run, within=DRAIN)
    except AssertionError:
        return


def _judge(scene: Scene, path: str, owed: Collection[str]) -> None:
    calls = scene.target.calls(path)
    times = Counter(call.run_id for call in calls)
    counted = {
        Kind.LOST: [run for run in owed if run not in times],
        Kind.DOUBLED: [run for run, count in times.items() if count > 1],
        Kind.PHANTOM: [run for run in times if run not in owed],
        Kind.EARLY: [call.run_id for call in calls if call.late < 0],
    }
    for kind, runs in counted.items():
        if runs:
            scene.find(kind, path, f"{len(runs)} of {len(owed)} runs, {sorted(runs)[:3]}")
    _note(scene, calls)


def _note(scene: Scene, calls: Collection[Call]) -> None:
    begun = sorted(call.started_at for call in calls)
    late = sorted(call.late for call in calls)
    if len(calls) > 1:
        scene.notes["crowd"] = len(calls)
        scene.notes["crowd_p50"], scene.notes["crowd_p99"] = _share(late, 0.5), _share(late, 0.99)
        scene.notes["crowd_seconds"] = (begun[-1] - begun[0]).total_seconds()


def _share(ordered: list[float], share: float) -> float:
    return ordered[int(share * (len(ordered) - 1))]
