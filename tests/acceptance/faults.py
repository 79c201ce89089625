"""What the tests of faults share: a pool of one's own, processes to hit, and the verdict."""

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
from tests.acceptance.record import Call, Target
from tests.acceptance.stack import PATIENCE, Stack, Tenant, until

from harebell.dev.local_services import Member
from harebell.dev.plan import Counts, ServiceKind, name_of
from harebell.dev.processes import is_ready

SHORT = {"HAREBELL_LEASE": "4s", "HAREBELL_LEASE_CRITICAL": "3s"}
SAMPLE = r"^{}(?:{{[^}}]*}})? (\S+)$"


async def start(stack: Stack, kind: ServiceKind, number: int = 1, **environment: str) -> Member:
    """Ready when it returns; the test's own connections stay alive meanwhile."""
    return await asyncio.to_thread(lambda: stack.start_one(kind, number, ready=True, **environment))


async def start_doomed(
    stack: Stack, kind: ServiceKind, number: int, failpoint: str, **environment: str
) -> str:
    """Its name. It kills itself where `failpoint` says, perhaps before it is ready."""
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


async def count_of(member: Member, metric: str) -> float:
    """What a service says on `/metrics`, over all labels."""
    url = f"http://127.0.0.1:{member.port}/metrics"
    with await asyncio.to_thread(urllib.request.urlopen, url, timeout=5) as answer:
        text = answer.read().decode()
    return sum(map(float, re.findall(SAMPLE.format(metric), text, re.MULTILINE)))


async def until_called(
    target: Target, path: str, times: int = 1, *, within: float = PATIENCE
) -> list[Call]:
    async def called() -> list[Call] | None:
        calls = target.calls(path)
        return calls if len(calls) >= times else None

    calls = await until(called, within=within, what=f"call {times} of {path}")
    assert calls is not None
    return calls


async def until_ready(stack: Stack, counts: Counts, *, within: float) -> float:
    """Seconds until every service that was started says that it is ready."""
    began = time.monotonic()
    ports = [stack.services.plan(*member).port for member in counts.members()]

    async def all_ready() -> bool:
        return all([await asyncio.to_thread(is_ready, port) for port in ports])

    await until(all_ready, within=within, what="every service's readiness")
    return time.monotonic() - began


def holder_of(run: asyncpg.Record) -> str:
    """The name of the executor: a holder is made of it and of something that changes."""
    name: str = run["lease_holder"].rpartition("-")[0]
    return name


def assert_each_once(calls: Iterable[Call], runs: Iterable[asyncpg.Record], owed: int) -> None:
    """Nothing lost, nothing doubled, nothing early; the ledger and the target agree."""
    calls, runs = list(calls), list(runs)
    ended = Counter((run["state"], run["attempt"]) for run in runs)
    assert ended == Counter({("succeeded", 1): owed})
    doubled = {run: times for run, times in Counter(c.run_id for c in calls).items() if times > 1}
    assert not doubled
    assert len(calls) == owed
    assert min(call.late for call in calls) >= 0


@dataclass
class Pool:
    """Executors of one test's own; the name is theirs and the schedules'."""

    name: str
    stack: Stack
    members: dict[int, Member] = field(default_factory=dict)

    async def start(self, number: int = 1, **environment: str) -> Member:
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
    """One-shots at even distances, `first` seconds from now on; the ids of their schedules."""
    schedules = [
        {
            "key": f"{prefix}-{number}",
            "when": {"after": f"{int(1000 * (first + over * number / runs))}ms"},
            "target": target,
            **more,
        }
        for number in range(runs)
    ]
    answers = await tenant.harebell.put_many(schedules)
    return [str(answer.id) for answer in answers if answer.ok]
