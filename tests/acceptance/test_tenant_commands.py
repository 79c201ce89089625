"""One tenant's flood delays the answers to another tenant by a bounded time.

The broker has the definitions file, and each service and each tenant has its own user.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import aio_pika
import pytest
from tests.acceptance.production import Production
from tests.rig.servers import Servers

from harebell.client import Client
from harebell.contract.amqp_names import COMMANDS
from harebell.contract.json_codec import encode_plain
from harebell.dev.plan import ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.broker_version]

FLOOD, VICTIM, NEW = "acme", "umbrella", "initech"
FLOOD_COMMANDS, ITEMS = 50_000, 500
MAX_ANSWER = 1.0  # seconds until the answer to the victim, by the promise
MAX_SLOW_ANSWER = 4.0  # seconds, of single answers on a machine whose cores have other work
TARGET = {"task": {"name": "harebell.echo"}}


@pytest.fixture(scope="module")
def production(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    root = tmp_path_factory.mktemp("tenant-load")
    with Production.open(servers, root, tenants=(FLOOD, VICTIM)) as production:
        production.start()
        yield production


def rare(prefix: str, number: int, rules: Sequence[dict[str, str]]) -> dict[str, Any]:
    when = rules[0] if len(rules) == 1 else {"any_of": list(rules)}
    return {"key": f"{prefix}-{number}", "when": when, "target": TARGET}


async def publish(url: str, tenant: str, bodies: Sequence[bytes]) -> None:
    """Publish arrays of puts without a wait for their answers."""
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        exchange = await channel.get_exchange(COMMANDS, ensure=False)
        messages = [aio_pika.Message(body, user_id=tenant) for body in bodies]
        await asyncio.gather(
            *(exchange.publish(message, f"{tenant}.schedule.put") for message in messages)
        )


async def answer_times(victim: Client, count: int, prefix: str) -> list[float]:
    """Return the seconds until the answer to each of several puts, one after the other."""
    seconds = []
    for number in range(count):
        started_at = time.monotonic()
        response = await victim.put(rare(prefix, number, [{"cron": "0 3 * * *"}]))
        seconds.append(time.monotonic() - started_at)
        assert response.ok
        await asyncio.sleep(0.2)
    return seconds


@pytest.mark.requirement("P6")
async def test_put_is_answered_within_a_second_under_the_flood_of_another_tenant(
    production: Production, record_property: Any
) -> None:
    flood = [
        encode_plain([rare(f"m{n}", k, [{"cron": "0 0 29 2 *"}]) for k in range(ITEMS)])
        for n in range(FLOOD_COMMANDS // ITEMS)
    ]
    async with Client.connect(production.url(VICTIM), tenant=VICTIM, timeout=60) as victim:
        await answer_times(victim, 3, "warm")
        idle = await answer_times(victim, 10, "idle")
        flooding = asyncio.create_task(publish(production.url(FLOOD), FLOOD, flood))
        await asyncio.sleep(0.5)
        busy = await answer_times(victim, 15, "busy")
        await flooding
        async with production.stack.tenant(FLOOD) as flooder:
            applied = await flooder.ledger.fetchval(
                "SELECT count(*) FROM schedules WHERE tenant = $1", FLOOD
            )
    record_property("answer", f"idle {max(idle):.3f} s, flood {max(busy):.3f} s, {applied} applied")

    assert 0 < applied < FLOOD_COMMANDS, "the flood must last during the measurement"
    assert median(busy) < MAX_ANSWER, busy
    assert max(busy) < MAX_SLOW_ANSWER, busy


@pytest.mark.requirement("P6")
async def test_expensive_message_delays_no_other_tenant(production: Production) -> None:
    """Send 500 schedules with 16 rules each, whose dates are rare and whose texts all differ."""
    expensive = [
        rare(
            "cpu",
            number,
            [
                {"cron": f"{(16 * number + rule) % 60} {number // 60} 3 * 2 {rule % 7}#5"}
                for rule in range(16)
            ],
        )
        for number in range(ITEMS)
    ]
    bodies = [encode_plain(expensive)] * 4
    async with Client.connect(production.url(VICTIM), tenant=VICTIM, timeout=60) as victim:
        await answer_times(victim, 3, "warm")
        flooding = asyncio.create_task(publish(production.url(FLOOD), FLOOD, bodies))
        busy = await answer_times(victim, 10, "cheap")
        await flooding

    assert median(busy) < MAX_ANSWER, busy
    assert max(busy) < MAX_SLOW_ANSWER, busy


async def test_queue_of_a_new_tenant_is_consumed_without_a_restart(
    production: Production, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Import the definitions of a further tenant, and name the tenant in the policies."""
    policies = tmp_path_factory.mktemp("policies") / "tenants.yml"
    policies.write_text("tenants: {}\n")
    production.start(ServiceKind.INTAKE, number=2, HAREBELL_TENANTS_FILE=str(policies))
    production.prepare(servers, (FLOOD, VICTIM, NEW))
    policies.write_text(f"tenants: {{{NEW}: {{}}}}\n")

    async with Client.connect(production.url(NEW), tenant=NEW, timeout=60) as new:
        response = await new.put(rare("first", 0, [{"cron": "0 3 * * *"}]))

    assert response.ok
