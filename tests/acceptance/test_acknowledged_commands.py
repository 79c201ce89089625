"""What has been acknowledged is stored: doors and tickers killed outright right after a reply."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice

import pytest
from tests.acceptance.faults import start
from tests.acceptance.stack import WAIT_TIMEOUT, Stack, Tenant

from harebell.dev.plan import ServiceKind, name_of

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

KILLS = 20
AT_ONCE = 50  # commands sent before each
MANY_KILLS = int(os.environ.get("KILLS", "100"))  # as many as one has time for: a start each
FEW_AT_ONCE = 4
LATER = {"after": "1h"}

# The first of a kind works and the second stands by; killed, they change places.
INTAKES = ((ServiceKind.INTAKE, 1), (ServiceKind.INTAKE, 2))
VICTIMS = (
    (ServiceKind.INTAKE, 1),
    (ServiceKind.TICKER, 1),
    (ServiceKind.INTAKE, 2),
    (ServiceKind.TICKER, 2),
)

_STORED = "SELECT id::text FROM schedules WHERE tenant = $1"


@pytest.fixture
async def pairs(own_stack: Stack, name_of_test: str) -> AsyncIterator[Tenant]:
    """A tenant of two intakes and two tickers."""
    for member in VICTIMS:
        await start(own_stack, *member)
    async with own_stack.tenant(name_of_test) as opened:
        yield opened


@pytest.fixture
async def intakes(own_stack: Stack, name_of_test: str) -> AsyncIterator[Tenant]:
    """A tenant of two intakes and a ticker."""
    for member in (*INTAKES, (ServiceKind.TICKER, 1)):
        await start(own_stack, *member)
    async with own_stack.tenant(name_of_test) as opened:
        yield opened


@dataclass
class Told:
    """Ids of schedules: acknowledged, and of these not found in the ledger after a kill."""

    acknowledged: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    took: float = 0.0  # seconds


async def stored(tenant: Tenant) -> set[str]:
    return {row["id"] for row in await tenant.ledger.fetch(_STORED, tenant.name)}


@pytest.mark.requirement("S25")
async def test_a_thousand_acknowledged_commands_are_stored_whoever_is_killed_after_the_reply(
    pairs: Tenant, record_property: Callable[[str, object], None]
) -> None:
    told = await kill_in_turn(pairs, VICTIMS, KILLS, AT_ONCE)

    record_property("killed", f"{KILLS} times in {told.took:.0f} s")
    assert not told.missing
    assert len(told.acknowledged) == KILLS * AT_ONCE
    assert await stored(pairs) == told.acknowledged


@pytest.mark.requirement("S25")
@pytest.mark.chaos
async def test_whatever_an_intake_acknowledged_before_each_of_many_kills_is_stored(
    intakes: Tenant, record_property: Callable[[str, object], None]
) -> None:
    told = await kill_in_turn(intakes, INTAKES, MANY_KILLS, FEW_AT_ONCE)

    record_property("killed", f"{MANY_KILLS} times in {told.took:.0f} s")
    assert not told.missing
    assert len(told.acknowledged) == MANY_KILLS * FEW_AT_ONCE
    assert await stored(intakes) == told.acknowledged


async def kill_in_turn(
    tenant: Tenant, victims: Sequence[tuple[ServiceKind, int]], kills: int, at_once: int
) -> Told:
    """The first is killed after one reply, the next after two, and so on, up to all of them."""
    told = Told()
    returning: dict[tuple[ServiceKind, int], asyncio.Task[object]] = {}
    began = time.monotonic()
    for kill, victim in enumerate(islice(cycle(victims), kills)):
        kind, number = victim
        if (other := returning.pop((kind, 3 - number), None)) is not None:
            await other  # stands by again
        putting = [asyncio.create_task(put(tenant, f"{kill}-{n}", told)) for n in range(at_once)]
        for reply in islice(asyncio.as_completed(putting), kill % at_once + 1):
            await reply
        tenant.stack.kill(name_of(kind, number))
        told.missing |= told.acknowledged - await stored(tenant)
        returning[victim] = asyncio.create_task(start(tenant.stack, kind, number))
        async with asyncio.timeout(WAIT_TIMEOUT):
            await asyncio.gather(*putting)
    told.took = time.monotonic() - began
    await asyncio.gather(*returning.values())
    return told


async def put(tenant: Tenant, key: str, told: Told) -> None:
    hook = {"http": {"method": "POST", "url": "http://127.0.0.1:1/never"}}
    response = await tenant.harebell.put({"key": key, "when": LATER, "target": hook})
    told.acknowledged.add(str(response.id))
