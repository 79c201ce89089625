"""Row 30: retries whose delays differ wait beside each other, and what waits gets lost."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from tests.acceptance.recording_target import Call
from tests.acceptance.stack import Tenant
from tests.chaos.attempts import CLOCKS
from tests.chaos.environment import Scene
from tests.chaos.faults.queues import TIERS, purge, queues
from tests.chaos.faults.registry import fault
from tests.chaos.result import Kind

DELAYS: Final = (1.0, 2.0, 4.0, 8.0)  # seconds between the first attempt and the second
EACH: Final = 20  # runs of a delay
SPREAD: Final = 4.0  # seconds; of as many runs whose delay is drawn anew for each, up to this
SLACK: Final = 1.0  # seconds and
SHARE: Final = 0.1  # of the delay that a second attempt may be late
SWEEP: Final = 60.0  # seconds in which a sweep makes again what got lost
WAITING: Final = 1.0  # seconds until first attempts have failed, and second ones wait
PATIENCE: Final = 90.0  # seconds until all have run twice


@fault("30a", "retries of 1 s to 8 s beside each other")
async def mixed(scene: Scene) -> AsyncIterator[None]:
    """The short ones do not wait for the long ones, and those with jitter differ."""
    gaps = _Gaps(scene)
    await gaps.put()
    yield
    await gaps.judge(late=SLACK)


@fault("30b", "delay queues purged while retries wait in them", recovery=SWEEP)
async def lost(scene: Scene) -> AsyncIterator[None]:
    """Each is made again from its row."""
    gaps = _Gaps(scene)
    await gaps.put()
    await asyncio.sleep(WAITING)
    await purge(scene, await queues(scene, TIERS))
    yield
    await gaps.judge(late=SWEEP)


class _Gaps:
    """What a wave owes beside its load: runs that fail once, and how long they wait then."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._path = f"{scene.tenant}-gaps"

    async def put(self) -> None:
        bodies = [
            self._body(f"{delay:g}-{k}", delay, "none") for delay in DELAYS for k in range(EACH)
        ]
        bodies += [self._body(f"spread-{k}", SPREAD, "full") for k in range(EACH)]
        async with self._tenant() as tenant:
            answers = await tenant.harebell.put_many(bodies)
        for body, answer in zip(bodies, answers, strict=True):
            if not answer.ok:
                self._scene.find(Kind.UNTOLD, body["key"], str(answer))

    async def judge(self, late: float) -> None:
        async with self._tenant() as tenant:
            try:
                await tenant.until_runs((len(DELAYS) + 1) * EACH, "succeeded", within=PATIENCE)
            except AssertionError as error:
                self._scene.find(Kind.LOST, self._path, str(error))
        for delay in DELAYS:
            gaps = self._between(f"{delay:g}")
            least, most = delay - CLOCKS.total_seconds(), delay * (1 + SHARE) + late
            wrong = [gap for gap in gaps if not least <= gap <= most]
            if wrong or len(gaps) != EACH:
                kind = Kind.EARLY if wrong and min(wrong) < delay else Kind.LATE
                self._scene.find(kind, f"{delay:g} s", f"{len(gaps)} second attempts, not {wrong}")
        drawn = self._between("spread")
        if len({round(gap, 1) for gap in drawn}) < EACH // 4:
            self._scene.find(Kind.RECORD, "spread", f"no jitter: {drawn}")

    def _tenant(self) -> AbstractAsyncContextManager[Tenant]:
        return self._scene.stack.tenant(self._path)

    def _between(self, group: str) -> list[float]:
        """Seconds from the end of each first attempt to the beginning of its second."""
        found: defaultdict[str, list[Call]] = defaultdict(list)
        for call in self._scene.target.calls(f"{self._path}-{group}"):
            found[call.run_id].append(call)
        return [_gap(calls) for calls in found.values() if len(calls) > 1]

    def _body(self, key: str, delay: float, jitter: str) -> dict[str, Any]:
        group = key.partition("-")[0]
        backoff = {"base": f"{delay:g}s", "factor": 1, "jitter": jitter}
        return {
            "key": key,
            "request_id": f"{self._path}-{key}",
            "when": {"now": True},
            "target": self._scene.target.http(f"{self._path}-{group}", fail=1),
            "retry": {"max_attempts": 8, "backoff": backoff},
        }


def _gap(calls: Collection[Call]) -> float:
    first, second = sorted(calls, key=lambda call: call.started_at)[:2]
    ended = first.finished_at or first.started_at
    return (second.started_at - ended).total_seconds()
