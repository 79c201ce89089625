"""Effects of repeated calls, at a target that honours the idempotency key and at one that does not.

Executors are killed under load, so that some runs have a second attempt.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from tests.acceptance.faults import SHORT_LEASES, Pool, put_spread
from tests.acceptance.stack import Tenant
from tests.rig.polling import WAIT_TIMEOUT, until

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

RUNS = 80  # of each target
FIRST_DUE, LOAD_DURATION = 1.0, 8.0  # seconds
CALL_DURATION = 0.4  # seconds, so that each kill interrupts calls
EFFECT_DELAY = 0.1  # seconds from the arrival of a call to its effect
SLOTS = 8
KILLS = 2
KEY = "Idempotency-Key"


@dataclass(kw_only=True)
class Shop:
    """A service with an effect for each call, or for each new idempotency key."""

    url: str = ""
    known: set[str] = field(default_factory=set)
    calls: Counter[str] = field(default_factory=Counter)
    careful: Counter[str] = field(default_factory=Counter)  # effects by idempotency key
    careless: Counter[str] = field(default_factory=Counter)

    async def handle(self, request: web.Request) -> web.Response:
        key = request.headers[KEY]
        self.calls[key] += 1
        await asyncio.sleep(EFFECT_DELAY)
        if request.path == "/careless":
            self.careless[key] += 1
        elif key not in self.known:
            self.known.add(key)
            self.careful[key] += 1
        await asyncio.sleep(CALL_DURATION - EFFECT_DELAY)
        return web.Response()


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    opened, app = Shop(), web.Application()
    app.router.add_post("/{path}", opened.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    opened.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield opened
    await runner.cleanup()


@pytest.mark.requirement("S79")
async def test_target_that_honours_the_key_has_one_effect_for_each_run_when_executors_are_killed(
    faulty_tenant: Tenant, pool: Pool, shop: Shop, record_property: Callable[[str, object], None]
) -> None:
    settings = SHORT_LEASES | {
        "HAREBELL_SLOTS_NORMAL": str(SLOTS),
        "HAREBELL_MAX_TARGET_SHARE": "1",
    }
    for number in (1, 2):
        await pool.start(number, **settings)
    ids: dict[str, set[str]] = {}
    for path in ("careful", "careless"):
        hook = {"http": {"url": f"{shop.url}/{path}"}}
        more: dict[str, Any] = {
            "prefix": path,
            "pool": pool.name,
            "retry": {"max_attempts": 2 + KILLS},
        }
        ids[path] = set(
            await put_spread(faulty_tenant, hook, RUNS, first=FIRST_DUE, over=LOAD_DURATION, **more)
        )

    for kill in range(KILLS):
        await until_calls(shop, (1 + kill) * RUNS // 3)
        number = 1 + kill % 2
        pool.stack.kill(pool.members[number].name)
        await pool.start(number, **settings)
    runs = await faulty_tenant.until_runs(2 * RUNS, "succeeded", within=2 * WAIT_TIMEOUT)

    doubled = sum(shop.careless.values()) - RUNS
    repeated = sum(shop.calls.values()) - 2 * RUNS
    record_property(
        "calls", f"{repeated} more than runs, {doubled} doubled effects without the key"
    )
    assert repeated > 0, "No kill interrupted a call."
    assert {len(each) for each in ids.values()} == {RUNS}
    assert schedules_of(shop.careful) == ids["careful"]
    assert set(shop.careful.values()) == {1}
    assert schedules_of(shop.careless) == ids["careless"]
    assert 0 <= doubled <= KILLS * SLOTS
    attempts = {f"{run['schedule_id']}": run["attempt"] for run in runs}
    assert all(times <= attempts[key.partition("@")[0]] for key, times in shop.calls.items()), (
        "A call belongs to no attempt."
    )


async def until_calls(shop: Shop, count: int) -> None:
    async def are_enough() -> bool:
        return sum(shop.calls.values()) >= count

    await until(are_enough, what=f"{count} calls")


def schedules_of(effects: Counter[str]) -> set[str]:
    """Return the schedules of the idempotency keys, which are run ids."""
    return {key.partition("@")[0] for key in effects}
