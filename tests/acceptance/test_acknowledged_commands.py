"""Acknowledged commands are stored: kills of intakes and tickers right after a reply."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice

import pytest
from tests.acceptance.faults import start
from tests.acceptance.stack import Stack, Tenant
from tests.rig.polling import WAIT_TIMEOUT

from harebell.dev.plan import ServiceKind, name_of

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

KILLS = 20
COMMANDS_PER_KILL = 50  # sent before each kill
MANY_KILLS = int(os.environ.get("KILLS", "100"))  # each kill includes a start
FEW_COMMANDS_PER_KILL = 4
LATER = {"after": "1h"}

# The first instance of a kind works and the second waits. After a kill, they change roles.
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
    """Yield a tenant on a stack with two intakes and two tickers."""
    for member in VICTIMS:
        await start(own_stack, *member)
    async with own_stack.tenant(name_of_test) as opened:
        yield opened


@pytest.fixture
async def intakes(own_stack: Stack, name_of_test: str) -> AsyncIterator[Tenant]:
    """Yield a tenant on a stack with two intakes and one ticker."""
    for member in (*INTAKES, (ServiceKind.TICKER, 1)):
        await start(own_stack, *member)
    async with own_stack.tenant(name_of_test) as opened:
        yield opened


@dataclass
class KillResult:
    """Ids of acknowledged schedules, and the ids that the ledger lacked after a kill."""

    acknowledged: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    took: float = 0.0  # seconds


async def stored_ids(tenant: Tenant) -> set[str]:
    return {row["id"] for row in await tenant.ledger.fetch(_STORED, tenant.name)}


@pytest.mark.requirement("S25")
async def test_acknowledged_command_is_stored_when_a_service_is_killed_after_the_reply(
    pairs: Tenant, record_property: Callable[[str, object], None]
) -> None:
    result = await kill_in_turn(pairs, VICTIMS, KILLS, COMMANDS_PER_KILL)

    record_property("killed", f"{KILLS} times in {result.took:.0f} s")
    assert not result.missing
    assert len(result.acknowledged) == KILLS * COMMANDS_PER_KILL
    assert await stored_ids(pairs) == result.acknowledged


@pytest.mark.requirement("S25")
@pytest.mark.chaos
async def test_acknowledged_command_is_stored_when_an_intake_is_killed_many_times(
    intakes: Tenant, record_property: Callable[[str, object], None]
) -> None:
    result = await kill_in_turn(intakes, INTAKES, MANY_KILLS, FEW_COMMANDS_PER_KILL)

    record_property("killed", f"{MANY_KILLS} times in {result.took:.0f} s")
    assert not result.missing
    assert len(result.acknowledged) == MANY_KILLS * FEW_COMMANDS_PER_KILL
    assert await stored_ids(intakes) == result.acknowledged


async def kill_in_turn(
    tenant: Tenant, victims: Sequence[tuple[ServiceKind, int]], kills: int, at_once: int
) -> KillResult:
    """Kill the first victim after one reply, the next after two, and so on."""
    result = KillResult()
    returning: dict[tuple[ServiceKind, int], asyncio.Task[object]] = {}
    started_at = time.monotonic()
    for kill, victim in enumerate(islice(cycle(victims), kills)):
        kind, number = victim
        if (other := returning.pop((kind, 3 - number), None)) is not None:
            await other  # the other instance waits again
        putting = [asyncio.create_task(put(tenant, f"{kill}-{n}", result)) for n in range(at_once)]
        for reply in islice(asyncio.as_completed(putting), kill % at_once + 1):
            await reply
        tenant.stack.kill(name_of(kind, number))
        result.missing |= result.acknowledged - await stored_ids(tenant)
        returning[victim] = asyncio.create_task(start(tenant.stack, kind, number))
        async with asyncio.timeout(WAIT_TIMEOUT):
            await asyncio.gather(*putting)
    result.took = time.monotonic() - started_at
    await asyncio.gather(*returning.values())
    return result


async def put(tenant: Tenant, key: str, result: KillResult) -> None:
    hook = {"http": {"method": "POST", "url": "http://127.0.0.1:1/never"}}
    response = await tenant.harebell.put({"key": key, "when": LATER, "target": hook})
    result.acknowledged.add(str(response.id))
