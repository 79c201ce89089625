"""Scenario: executors that die or hang, retries with backoff, poison, and a failing downstream."""

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from tests.acceptance import tasks
from tests.acceptance.faults import SHORT_LEASES, holder_of, send, start, until_called, until_dead
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant
from tests.rig.polling import until
from tests.rig.task_plugins import install

from harebell.contract.downstream import downstream_of_json
from harebell.dev.plan import ServiceCounts, ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

EXECUTORS: Final = 4
MAX_ATTEMPTS: Final = 3
BASE: Final = 1.0  # seconds: the wait after the first failure
RESOLUTION: Final = 0.001  # seconds, of the stored times
RETRY: Final = {
    "max_attempts": MAX_ATTEMPTS,
    "backoff": {"base": "1s", "factor": 2, "cap": "1m", "jitter": "none"},
}
PATIENT: Final = {"max_attempts": 100, "backoff": {"base": "500ms", "factor": 1, "cap": "500ms"}}
DOWN: Final = 30  # runs of the failing downstream
BREAKER: Final = {
    "HAREBELL_BREAKER_MODE": "auto",
    "HAREBELL_BREAKER_MIN_CALLS": "20",
    "HAREBELL_BREAKER_OPEN_DURATION": "3s",
}
POISON: Final = "test.scenario_poison"


@pytest.fixture
def downstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Yield a target with another port, which is another downstream."""
    with Target.open(tmp_path_factory.mktemp("downstream") / "calls.jsonl") as opened:
        yield opened


async def until_effective_state(tenant: Tenant, name: str, expected: str) -> None:
    async def is_reached() -> bool:
        states = {
            each.downstream: each.effective_state for each in await tenant.harebell.breakers()
        }
        return states.get(name) == expected

    await until(is_reached, within=60, what=f"the state {expected} of {name}")


@pytest.mark.requirement("S82", "S84", "S103", "S104", "S106", "S110", "S113")
async def test_every_run_ends_as_its_policy_says_while_executors_die_and_a_downstream_fails(
    own_stack: Stack, target: Target, downstream: Target, tmp_path: Path
) -> None:
    poison_task = {POISON: f"{tasks.__name__}:{tasks.kill_executor.__name__}"}
    environment: dict[str, str] = {
        **install(tmp_path, "scenario", poison_task),
        **BREAKER,
        **SHORT_LEASES,
    }
    await asyncio.to_thread(own_stack.start, ServiceCounts(executors=EXECUTORS), **environment)
    async with own_stack.tenant("workers") as tenant:
        await retries(tenant, target)
        await leases(tenant, target, environment)
        await poison(tenant)
        await breaker(tenant, target, downstream)

        open_runs = [row for row in await tenant.runs() if row["finished_at"] is None]
        letters = [each async for each in tenant.harebell.dead_letters()]

    assert open_runs == []
    assert {letter.key for letter in letters} == {"never-succeeds", "poison"}
    assert {letter.attempts for letter in letters} == {MAX_ATTEMPTS}


async def retries(tenant: Tenant, target: Target) -> None:
    """Two failures and a success are three attempts, and failures only are a dead letter."""
    await tenant.put("flaky", {"now": True}, target.http("flaky", fail=2), retry=RETRY)
    await tenant.put("never-succeeds", {"now": True}, target.http("never", fail=99), retry=RETRY)
    await tenant.until_runs(1, "succeeded")
    await tenant.until_runs(1, "dead")

    for path, ends in (("flaky", [False, False, True]), ("never", [False, False, False])):
        calls = target.calls(path)
        waits = [
            (after.started_at - before.finished_at).total_seconds()
            for before, after in pairwise(calls)
            if before.finished_at is not None
        ]
        assert [call.ok for call in calls] == ends
        assert [call.attempt for call in calls] == [1, 2, 3]
        assert all(wait >= BASE * 2**n - RESOLUTION for n, wait in enumerate(waits)), waits


async def leases(tenant: Tenant, target: Target, environment: dict[str, str]) -> None:
    """Another executor performs the run of a killed executor and of a frozen executor."""
    succeeded = 1  # the run of the flaky target
    for path, sent in (("killed", signal.SIGKILL), ("frozen", signal.SIGSTOP)):
        key = {"key": path, "when": {"now": True}, "retry": RETRY}
        await tenant.harebell.put({**key, "target": target.http(path, sleep=3)})
        await until_called(target, path)
        (running,) = await tenant.runs("running")
        holder = holder_of(running)
        send(tenant.stack, holder, sent)
        first, second = await until_called(target, path, 2)
        if sent is signal.SIGSTOP:
            send(tenant.stack, holder, signal.SIGCONT)
        else:
            await until_dead(tenant.stack, holder)
            await start(tenant.stack, ServiceKind.EXECUTOR, number_of(holder), **environment)
        assert second.token > first.token
        assert second.idempotency_key == first.idempotency_key
        succeeded += 1
        await tenant.until_runs(succeeded, "succeeded")


def number_of(name: str) -> int:
    return int(name.rpartition("-")[2])


async def poison(tenant: Tenant) -> None:
    """A run that kills its executors becomes a dead letter within its attempts."""
    await tenant.put("poison", {"now": True}, {"task": {"name": POISON}}, retry=RETRY)
    dead = await tenant.until_runs(2, "dead", within=90)
    assert Counter(row["attempt"] for row in dead) == {MAX_ATTEMPTS: 2}


async def breaker(tenant: Tenant, target: Target, downstream: Target) -> None:
    """An open breaker delays the runs of its downstream and no other run, and loses none."""
    hook = downstream.http("down", broken="down")
    name = downstream_of_json(hook)
    schedules: list[dict[str, Any]] = [
        {"key": f"down-{number}", "when": {"now": True}, "target": hook, "retry": PATIENT}
        for number in range(DOWN)
    ]
    await tenant.harebell.put_many(schedules)
    await until_effective_state(tenant, name, "open")
    await tenant.put("neighbour", {"now": True}, target.http("neighbour"))
    await until_called(target, "neighbour")
    downstream.fix("down")
    await tenant.until_runs(3 + 1 + DOWN, "succeeded", within=90)
    await until_effective_state(tenant, name, "closed")
    assert Counter(call.ok for call in downstream.calls("down"))[True] == DOWN
