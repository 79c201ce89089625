"""What has been acknowledged is stored: doors and tickers killed outright right after a reply."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from itertools import cycle, islice

import pytest
from tests.acceptance.faults import start
from tests.acceptance.stack import PATIENCE, Stack, Tenant

from harebell.dev.plan import Kind, name_of

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

KILLS = 20
AT_ONCE = 50  # commands sent before each; the first is killed after one reply, the next after two
LATER = {"after": "1h"}

# The first of a kind works and the second stands by; killed, they change places.
VICTIMS = ((Kind.INTAKE, 1), (Kind.TICKER, 1), (Kind.INTAKE, 2), (Kind.TICKER, 2))

_STORED = "SELECT id::text FROM schedules WHERE tenant = $1"


@pytest.fixture
async def pairs(own_stack: Stack, name_of_test: str) -> AsyncIterator[Tenant]:
    """A tenant of two intakes and two tickers."""
    for member in VICTIMS:
        await start(own_stack, *member)
    async with own_stack.tenant(name_of_test) as opened:
        yield opened


async def stored(tenant: Tenant) -> set[str]:
    return {row["id"] for row in await tenant.ledger.fetch(_STORED, tenant.name)}


async def test_s25_a_thousand_acknowledged_commands_are_stored_whoever_is_killed_after_the_reply(
    pairs: Tenant, record_property: Callable[[str, object], None]
) -> None:
    stack, harebell = pairs.stack, pairs.harebell
    acknowledged: list[str] = []
    returning: dict[tuple[Kind, int], asyncio.Task[object]] = {}

    async def put(key: str) -> None:
        hook = {"http": {"method": "POST", "url": "http://127.0.0.1:1/never"}}
        answer = await harebell.put({"key": key, "when": LATER, "target": hook})
        acknowledged.append(str(answer.id))

    began, missing = time.monotonic(), set[str]()
    for kill, victim in enumerate(islice(cycle(VICTIMS), KILLS)):
        kind, number = victim
        if (other := returning.pop((kind, 3 - number), None)) is not None:
            await other  # stands by again
        putting = [asyncio.create_task(put(f"{kill}-{n}")) for n in range(AT_ONCE)]
        for reply in islice(asyncio.as_completed(putting), kill + 1):
            await reply
        stack.kill(name_of(kind, number))
        missing |= set(acknowledged) - await stored(pairs)
        returning[victim] = asyncio.create_task(start(stack, kind, number))
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*putting)
    took = time.monotonic() - began
    await asyncio.gather(*returning.values())

    record_property("killed", f"{KILLS} times in {took:.0f} s")
    assert not missing
    assert len(set(acknowledged)) == len(acknowledged) == KILLS * AT_ONCE
    assert await stored(pairs) == set(acknowledged)
