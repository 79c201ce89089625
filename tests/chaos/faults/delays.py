"""Row 30: retries with different delays wait at the same time, also with a loss of tickets."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from tests.acceptance.recording_target import Call
from tests.acceptance.stack import Tenant
from tests.chaos.attempts import CLOCK_TOLERANCE
from tests.chaos.environment import Environment
from tests.chaos.faults.queues import DELAY, TICKET_RECOVERY, purge, queues
from tests.chaos.faults.registry import fault
from tests.chaos.result import FindingKind

DELAYS: Final = (1.0, 2.0, 4.0, 8.0)  # seconds between the first attempt and the second
RUNS_PER_DELAY: Final = 20
MAX_RANDOM_DELAY: Final = 4.0  # seconds, of further runs with a random delay
LATENESS: Final = 1.0  # seconds that a second attempt may be late, and
LATENESS_SHARE: Final = 0.1  # of its delay
FIRST_ATTEMPTS: Final = 1.0  # seconds until first attempts have failed and retries wait
RUN_TIMEOUT: Final = 90.0  # seconds until all runs have two attempts


@fault("30a", "retries with delays of 1 s to 8 s at the same time")
async def mixed(environment: Environment) -> AsyncIterator[None]:
    """Check that short delays do not wait for long ones, and that random delays differ."""
    retries = _Retries(environment)
    await retries.put()
    yield
    await retries.check(max_lateness=LATENESS)


@fault("30b", "delay queues purged while retries wait in them", recovery=TICKET_RECOVERY)
async def lost(environment: Environment) -> AsyncIterator[None]:
    """Check that the ticker restores the ticket of each retry from its row."""
    retries = _Retries(environment)
    await retries.put()
    await asyncio.sleep(FIRST_ATTEMPTS)
    await purge(environment, await queues(environment, DELAY))
    yield
    await retries.check(max_lateness=TICKET_RECOVERY)


class _Retries:
    """Runs in addition to the load, which fail once, and the delays of their retries."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._path = f"{environment.tenant}-retries"

    async def put(self) -> None:
        bodies = [
            self._body(f"{delay:g}-{k}", delay, "none")
            for delay in DELAYS
            for k in range(RUNS_PER_DELAY)
        ]
        bodies += [
            self._body(f"random-{k}", MAX_RANDOM_DELAY, "full") for k in range(RUNS_PER_DELAY)
        ]
        async with self._tenant() as tenant:
            responses = await tenant.harebell.put_many(bodies)
        for body, response in zip(bodies, responses, strict=True):
            if not response.ok:
                self._environment.add_finding(FindingKind.UNREPORTED, body["key"], str(response))

    async def check(self, max_lateness: float) -> None:
        await self._until_succeeded()
        for delay in DELAYS:
            gaps = self._gaps(f"{delay:g}")
            shortest = delay - CLOCK_TOLERANCE.total_seconds()
            longest = delay * (1 + LATENESS_SHARE) + max_lateness
            wrong = [gap for gap in gaps if not shortest <= gap <= longest]
            if wrong or len(gaps) != RUNS_PER_DELAY:
                is_early = bool(wrong) and min(wrong) < delay
                kind = FindingKind.EARLY if is_early else FindingKind.LATE
                text = f"{len(gaps)} second attempts, wrong delays {wrong}"
                self._environment.add_finding(kind, f"{delay:g} s", text)
        random_gaps = self._gaps("random")
        if len({round(gap, 1) for gap in random_gaps}) < RUNS_PER_DELAY // 4:
            text = f"no jitter: {random_gaps}"
            self._environment.add_finding(FindingKind.INCONSISTENT, "random", text)

    async def _until_succeeded(self) -> None:
        count = (len(DELAYS) + 1) * RUNS_PER_DELAY
        async with self._tenant() as tenant:
            try:
                await tenant.until_runs(count, "succeeded", within=RUN_TIMEOUT)
            except AssertionError as error:
                self._environment.add_finding(FindingKind.MISSING, self._path, str(error))

    def _tenant(self) -> AbstractAsyncContextManager[Tenant]:
        return self._environment.stack.tenant(self._path)

    def _gaps(self, group: str) -> list[float]:
        """Return the seconds from the end of each first attempt to the start of its second."""
        by_run: defaultdict[str, list[Call]] = defaultdict(list)
        for call in self._environment.target.calls(f"{self._path}-{group}"):
            by_run[call.run_id].append(call)
        return [_gap(calls) for calls in by_run.values() if len(calls) > 1]

    def _body(self, key: str, delay: float, jitter: str) -> dict[str, Any]:
        group = key.partition("-")[0]
        backoff = {"base": f"{delay:g}s", "factor": 1, "jitter": jitter}
        return {
            "key": key,
            "request_id": f"{self._path}-{key}",
            "when": {"now": True},
            "target": self._environment.target.http(f"{self._path}-{group}", fail=1),
            "retry": {"max_attempts": 8, "backoff": backoff},
        }


def _gap(calls: Collection[Call]) -> float:
    first, second = sorted(calls, key=lambda call: call.started_at)[:2]
    ended_at = first.finished_at or first.started_at
    return (second.started_at - ended_at).total_seconds()
