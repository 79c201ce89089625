"""Tools of the fault tests: a separate pool, failures of processes, and the final assertion."""

import asyncio
import re
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import asyncpg
from tests.acceptance.recording_target import Call, Target
from tests.acceptance.stack import Stack, Tenant
from tests.rig.polling import WAIT_TIMEOUT, until
from tests.suite.results import LostOrDoubledRun

from harebell.dev.local_services import StartedService
from harebell.dev.plan import ServiceCounts, ServiceKind, name_of
from harebell.dev.processes import is_ready

SHORT_LEASES = {"HAREBELL_LEASE": "4s", "HAREBELL_LEASE_CRITICAL": "3s"}
SAMPLE = r"^{}(?:{{[^}}]*}})? (\S+)$"


async def start(
    stack: Stack, kind: ServiceKind, number: int = 1, **environment: str
) -> StartedService:
    """Start an instance and wait until it is ready, in a thread so that connections stay alive."""
    return await asyncio.to_thread(lambda: stack.start_one(kind, number, ready=True, **environment))


async def start_with_kill(
    stack: Stack, kind: ServiceKind, number: int, failpoint: str, **environment: str
) -> str:
    """Start an instance that kills itself at `failpoint`, and return its name.

    The instance may end before it is ready.
    """
    environment |= {"HAREBELL_FAILPOINT": f"{failpoint}:kill"}
    await asyncio.to_thread(lambda: stack.start_one(kind, number, ready=False, **environment))
    return name_of(kind, number)


async def until_dead(stack: Stack, name: str) -> None:
    async def is_dead() -> bool:
        return stack.services.process(name) is None

    await until(is_dead, what=f"the end of {name}")


def send(stack: Stack, name: str, number: signal.Signals) -> None:
    process = stack.services.process(name)
    assert process is not None, f"{name} does not run"
    process.send(number)


async def count_of(member: StartedService, metric: str) -> float:
    """Return the value of a metric of one service, summed over all labels."""
    url = f"http://127.0.0.1:{member.port}/metrics"
    with await asyncio.to_thread(urllib.request.urlopen, url, timeout=5) as response:
        text = response.read().decode()
    return sum(map(float, re.findall(SAMPLE.format(metric), text, re.MULTILINE)))


async def until_called(
    target: Target, path: str, times: int = 1, *, within: float = WAIT_TIMEOUT
) -> list[Call]:
    async def called() -> list[Call] | None:
        calls = target.calls(path)
        return calls if len(calls) >= times else None

    calls = await until(called, within=within, what=f"call {times} of {path}")
    assert calls is not None
    return calls


async def until_ready(stack: Stack, counts: ServiceCounts, *, within: float) -> float:
    """Wait until every started service is ready and return the seconds."""
    began = time.monotonic()
    ports = [stack.services.plan(*member).port for member in counts.members()]

    async def all_ready() -> bool:
        return all([await asyncio.to_thread(is_ready, port) for port in ports])

    await until(all_ready, within=within, what="every service's readiness")
    return time.monotonic() - began


def holder_of(run: asyncpg.Record) -> str:
    """Return the name of the executor from a lease holder, which ends with a variable part."""
    name: str = run["lease_holder"].rpartition("-")[0]
    return name


def assert_each_once(calls: Iterable[Call], runs: Iterable[asyncpg.Record], expected: int) -> None:
    """Assert one succeeded run and one call for each expected run, and no early call.

    Raise `LostOrDoubledRun` for a run without a call and for a run with several calls.
    """
    calls, runs = list(calls), list(runs)
    numbers = Counter(call.run_id for call in calls)
    repeated = {run: number for run, number in numbers.items() if number > 1}
    if repeated or not len(runs) == len(numbers) == expected:
        raise LostOrDoubledRun(
            f"{expected} runs were expected. The ledger has {len(runs)}, the target was called for"
            f" {len(numbers)}, and these were called several times: {repeated}."
        )
    ends = Counter((run["state"], run["attempt"]) for run in runs)
    assert ends == Counter({("succeeded", 1): expected})
    assert min(call.late for call in calls) >= 0


@dataclass
class Pool:
    """A pool of executors for one test. The schedules of the test name this pool."""

    name: str
    stack: Stack
    members: dict[int, StartedService] = field(default_factory=dict)

    async def start(self, number: int = 1, **environment: str) -> StartedService:
        member = await start(
            self.stack, ServiceKind.EXECUTOR, number, HAREBELL_POOL=self.name, **environment
        )
        self.members[number] = member
        return member

    def close(self) -> None:
        for member in self.members.values():
            self.stack.kill(member.name)


async def put_spread(
    tenant: Tenant,
    target: dict[str, Any],
    runs: int,
    *,
    first: float,
    over: float,
    prefix: str = "one",
    **more: Any,
) -> list[str]:
    """Put one-shot schedules at even distances and return their ids.

    The first run is due in `first` seconds and the last run `over` seconds later.
    """
    schedules = [
        {
            "key": f"{prefix}-{number}",
            "when": {"after": f"{int(1000 * (first + over * number / runs))}ms"},
            "target": target,
            **more,
        }
        for number in range(runs)
    ]
    responses = await tenant.harebell.put_many(schedules)
    return [str(response.id) for response in responses if response.ok]
