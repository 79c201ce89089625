"""Services told to stop and started again under load, one kind, then one after the other."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from tests.acceptance.faults import assert_each_once, put_spread, start, until_called
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant, now, until
from tests.rig.servers import Servers

from harebell.dev.plan import ServiceCounts, ServiceKind, name_of
from harebell.dev.processes import STOP_TIMEOUT

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

PAIRS = ServiceCounts(tickers=2, dispatchers=2, executors=2)
HORIZON = "5s"  # so that tickers stage all the while, not only at the beginning
STAGED = 150  # runs that are owed before anything is stopped, over so many seconds:
OVER = 15.0
FAILING = 30  # runs that become dead letters meanwhile
EVERY = 0.15  # seconds between two commands
ONCE = {"max_attempts": 1}


@pytest.fixture(scope="module")
def rolling_stack(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack.open(servers, tmp_path_factory.mktemp("rolling")) as stack:
        stack.start(PAIRS, HAREBELL_HORIZON=HORIZON)
        yield stack


@pytest.mark.requirement("S73")
@pytest.mark.parametrize("kind", ServiceKind)
async def test_a_service_told_to_stop_under_load_loses_doubles_and_uses_up_nothing(
    kind: ServiceKind,
    rolling_stack: Stack,
    target: Target,
    record_property: Callable[[str, object], None],
) -> None:
    async with rolling_stack.tenant(f"stopped-{kind}".replace("_", "-")) as tenant:
        load = Load(tenant, target)
        await load.begin()
        took = await restart(rolling_stack, kind)
        late = await load.end()

    record_property("stopped", f"{took:.2f} s after SIGTERM; worst run {late:.2f} s late")


@pytest.mark.requirement("S58")
async def test_all_services_restarted_one_after_another_under_load_lose_and_double_nothing(
    rolling_stack: Stack, target: Target, record_property: Callable[[str, object], None]
) -> None:
    async with rolling_stack.tenant("rolling") as tenant:
        load = Load(tenant, target)
        await load.begin()
        took = [
            (name_of(kind, number), await restart(rolling_stack, kind, number))
            for kind, number in PAIRS.members()
        ]
        late = await load.end()

    told = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in took)
    record_property("stopped", f"after SIGTERM: {told}; worst run {late:.2f} s late")


async def restart(stack: Stack, kind: ServiceKind, number: int = 1) -> float:
    """Seconds from SIGTERM to its end, which is its own: nothing had to kill it."""
    name = name_of(kind, number)
    notified_at = now()
    await asyncio.to_thread(stack.stop, name)
    took = (now() - notified_at).total_seconds()
    assert took < STOP_TIMEOUT
    await start(stack, kind, number, HAREBELL_HORIZON=HORIZON)
    return took


class Load:
    """Of one tenant: runs that are owed, runs that fail for good, and a command after another."""

    def __init__(self, tenant: Tenant, target: Target) -> None:
        self._tenant = tenant
        self._target = target
        self._over = asyncio.Event()
        self._hook = target.http(tenant.name, sleep=0.3)
        self._failing = f"{tenant.name}-failing"

    async def begin(self) -> None:
        """Returns when it is well under way."""
        tenant, broken = self._tenant, self._target.http(self._failing, fail=1)
        await put_spread(tenant, self._hook, STAGED, first=1, over=OVER)
        await put_spread(tenant, broken, FAILING, first=1, over=OVER, prefix="failing", retry=ONCE)
        self._asking = asyncio.create_task(self._ask())
        await until_called(self._target, tenant.name, STAGED // 5)

    async def end(self) -> float:
        """Seconds that the latest run was late; each has run once, and each letter is there."""
        self._over.set()
        expected = STAGED + await self._asking
        succeeded = await self._tenant.until_runs(expected, "succeeded", within=OVER + 30)
        calls = self._target.calls(self._tenant.name)
        assert_each_once(calls, succeeded, expected)
        dead = await self._tenant.until_runs(FAILING, "dead")
        assert Counter(run["attempt"] for run in dead) == {1: FAILING}
        await until(self._all_letters, what=f"{FAILING} dead letters")
        failed = Counter(call.run_id for call in self._target.calls(self._failing))
        assert set(failed.values()) == {1}
        assert len(await self._tenant.runs()) == expected + FAILING
        return max(call.late for call in calls)

    async def _ask(self) -> int:
        """Until it is over; how many commands were acknowledged, each of one run."""
        for number in count():
            if self._over.is_set():
                return number
            await self._tenant.put(f"asked-{number}", {"after": "500ms"}, self._hook)
            await asyncio.sleep(EVERY)
        raise AssertionError

    async def _all_letters(self) -> bool:
        dead_letters = [dead_letter.run_id async for dead_letter in self._tenant.harebell.dead_letters()]
        return len(dead_letters) == len(set(dead_letters)) == FAILING
