"""Restarts of every service instance in sequence, under load."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from tests.acceptance.faults import assert_each_once, put_spread, start, until_called
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant, now
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.dev.plan import STOP_TIMEOUT, ServiceCounts, ServiceKind, name_of

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

PAIRS = ServiceCounts(tickers=2, dispatchers=2, executors=2)
HORIZON = "5s"  # short, so that tickers stage during the whole test
LOADED_RUNS = 150  # put before the first stop
LOAD_DURATION = 15.0  # seconds
FAILING_RUNS = 30  # runs that become dead letters during the test
COMMAND_INTERVAL = 0.15  # seconds
MAX_EXECUTOR_STOP = 5.0  # seconds; its calls last 0.3 s, and nothing else delays it
SINGLE_ATTEMPT = {"max_attempts": 1}


@pytest.fixture(scope="module")
def rolling_stack(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack.open(servers, tmp_path_factory.mktemp("rolling")) as stack:
        stack.start(PAIRS, HAREBELL_HORIZON=HORIZON)
        yield stack


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("S58", "S73")
async def test_runs_execute_once_when_every_service_restarts_under_load(
    rolling_stack: Stack, target: Target, record_property: Callable[[str, object], None]
) -> None:
    async with rolling_stack.tenant("rolling") as tenant:
        load = Load(tenant, target)
        await load.begin()
        duration = [
            (name_of(kind, number), await restart(rolling_stack, kind, number))
            for kind, number in PAIRS.members()
        ]
        late = await load.end()

    durations = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in duration)
    record_property("stopped", f"after SIGTERM: {durations}; worst run {late:.2f} s late")


async def restart(stack: Stack, kind: ServiceKind, number: int = 1) -> float:
    """Restart an instance, assert that SIGTERM sufficed, and return the seconds until its end.

    An executor waits only for its calls.
    """
    name = name_of(kind, number)
    notified_at = now()
    await asyncio.to_thread(stack.stop, name)
    duration = (now() - notified_at).total_seconds()
    assert duration < (MAX_EXECUTOR_STOP if kind is ServiceKind.EXECUTOR else STOP_TIMEOUT)
    await start(stack, kind, number, HAREBELL_HORIZON=HORIZON)
    return duration


class Load:
    """The load of one tenant: succeeding runs, failing runs and a sequence of commands."""

    def __init__(self, tenant: Tenant, target: Target) -> None:
        self._tenant = tenant
        self._target = target
        self._is_finished = asyncio.Event()
        self._hook = target.http(tenant.name, sleep=0.3)
        self._failing = f"{tenant.name}-failing"

    async def begin(self) -> None:
        """Put the runs and wait for the first calls."""
        tenant, broken = self._tenant, self._target.http(self._failing, fail=1)
        await put_spread(tenant, self._hook, LOADED_RUNS, first=1, over=LOAD_DURATION)
        await put_spread(
            tenant,
            broken,
            FAILING_RUNS,
            first=1,
            over=LOAD_DURATION,
            prefix="failing",
            retry=SINGLE_ATTEMPT,
        )
        self._commands = asyncio.create_task(self._send_commands())
        await until_called(self._target, tenant.name, LOADED_RUNS // 5)

    async def end(self) -> float:
        """Assert one call for each run and all dead letters, and return the maximum lateness."""
        self._is_finished.set()
        expected = LOADED_RUNS + await self._commands
        succeeded = await self._tenant.until_runs(expected, "succeeded", within=LOAD_DURATION + 30)
        calls = self._target.calls(self._tenant.name)
        assert_each_once(calls, succeeded, expected)
        dead = await self._tenant.until_runs(FAILING_RUNS, "dead")
        assert Counter(run["attempt"] for run in dead) == {1: FAILING_RUNS}
        await until(self._has_all_dead_letters, what=f"{FAILING_RUNS} dead letters")
        failed = Counter(call.run_id for call in self._target.calls(self._failing))
        assert set(failed.values()) == {1}
        assert len(await self._tenant.runs()) == expected + FAILING_RUNS
        return max(call.late for call in calls)

    async def _send_commands(self) -> int:
        """Send commands with one run each until the end, and return their number."""
        for number in count():
            if self._is_finished.is_set():
                return number
            await self._tenant.put(f"command-{number}", {"after": "500ms"}, self._hook)
            await asyncio.sleep(COMMAND_INTERVAL)
        raise AssertionError

    async def _has_all_dead_letters(self) -> bool:
        dead_letters = [
            dead_letter.run_id async for dead_letter in self._tenant.harebell.dead_letters()
        ]
        return len(dead_letters) == len(set(dead_letters)) == FAILING_RUNS
