"""Messages whose headers cost the broker a second each delay no message of another tenant."""

import asyncio
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
from tests.acceptance.delayed_rig import DelayedRig
from tests.acceptance.floods import (
    FLOOD,
    MAX_ANSWER,
    TARGET,
    VICTIM,
    list_schedules,
    request_times,
)
from tests.acceptance.hostile_messages import nested_headers
from tests.acceptance.production import Production
from tests.rig.amqp_wire import Wire
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.client import DeadLetterView
from harebell.contract.amqp_names import tenant_exchange
from harebell.messaging.topology.declarations import ExchangeKind

pytestmark = [
    pytest.mark.broker,
    pytest.mark.postgres,
    pytest.mark.long,
    pytest.mark.measures,
    pytest.mark.broker_version,
]

COUNT = 10
# Tables in each other. RabbitMQ needs about a second for each delivery of such a message, because
# the time grows with the square of the depth.
DEPTH = 10_000
FLOOD_LATE, VICTIM_LATE = f"{FLOOD}.late", f"{VICTIM}.late"
DELAY = 0.1  # seconds of the messages of the victim
MAX_LATENESS = 2.0  # seconds
POLICIES = f"""
defaults: {{quotas: {{schedules: null, puts_per_second: null}}}}
tenants:
  {FLOOD}: {{delayed_exchanges: [{FLOOD_LATE}]}}
  {VICTIM}: {{delayed_exchanges: [{VICTIM_LATE}]}}
"""


@pytest.fixture
def production(
    servers: Servers, longest_answer: float, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Production]:
    del longest_answer  # the services start with the priority of this process
    root = tmp_path_factory.mktemp("costly-headers")
    policies = root / "tenants.yml"
    policies.write_text(POLICIES)
    exchanges = dict.fromkeys((FLOOD_LATE, VICTIM_LATE), ExchangeKind.TOPIC)
    with Production.open(
        servers, root, tenants=(FLOOD, VICTIM), delayed_exchanges=exchanges
    ) as production:
        production.start(tenants_file=policies)
        yield production


@pytest.mark.requirement("P6")
@pytest.mark.parametrize("verb", ["schedule.put", "schedule.list", "dlq.list"])
async def test_costly_headers_of_a_tenant_delay_no_answer_to_another_tenant(
    production: Production, longest_answer: float, verb: str
) -> None:
    async with (
        Wire.open(production.url(FLOOD)) as wire,
        production.client(VICTIM, timeout=60) as victim,
    ):
        await request_times(victim, 3, list_schedules)
        flooding = asyncio.create_task(flood(wire, tenant_exchange(FLOOD), f"{FLOOD}.{verb}"))
        times = []
        for _ in range(12):
            started_at = time.monotonic()
            await victim.put({"key": str(uuid4()), "when": {"now": True}, "target": TARGET})
            times.append(time.monotonic() - started_at)
            times += await request_times(victim, 1, list_schedules)
        await flooding

    assert max(times) < longest_answer, times


@pytest.mark.requirement("P6", "ASK-4")
async def test_costly_headers_of_delayed_messages_delay_no_message_of_another_tenant(
    production: Production, longest_answer: float
) -> None:
    async with (
        Wire.open(production.stack.amqp_url) as wire,
        DelayedRig.open(production.stack.amqp_url, VICTIM_LATE) as victim,
    ):
        flooding = asyncio.create_task(flood(wire, FLOOD_LATE, "any"))
        lateness = []
        for number in range(12):
            sent_at = await victim.publish(b"%d" % number, round(1_000 * DELAY))
            received_at, _ = (await victim.until_received(number + 1))[-1]
            lateness.append(received_at - sent_at - DELAY)
        await flooding

    assert max(lateness) < MAX_LATENESS + longest_answer - MAX_ANSWER, lateness


@pytest.mark.requirement("P4", "P6")
async def test_costly_headers_of_expired_messages_delay_no_dead_letter_of_another_tenant(
    production: Production, longest_answer: float
) -> None:
    async with (
        Wire.open(production.url(FLOOD)) as wire,
        Wire.open(production.url(VICTIM)) as victim_wire,
        production.client(VICTIM, timeout=60) as victim,
    ):
        production.stack.stop("intake-1")  # the messages expire in the queues of the tenants
        await flood(wire, tenant_exchange(FLOOD), f"{FLOOD}.schedule.put", ttl_ms=1)
        key, properties = f"{VICTIM}.schedule.put".encode(), nested_headers(1, ttl_ms=1)
        started_at = time.monotonic()
        await victim_wire.publish(tenant_exchange(VICTIM), key, properties, b"{}")

        async def dead() -> list[DeadLetterView]:
            return [each async for each in victim.dead_letters()]

        [found] = await until(dead, what="the dead letter of the victim")
        seconds = time.monotonic() - started_at

    assert found.reason == "expired"
    assert seconds < MAX_LATENESS + longest_answer - MAX_ANSWER


async def flood(wire: Wire, exchange: str, routing_key: str, *, ttl_ms: int | None = None) -> None:
    """Publish messages with costly headers, each after the confirm of the one before."""
    properties = nested_headers(DEPTH, ttl_ms=ttl_ms)
    for _ in range(COUNT):
        await wire.publish(exchange, routing_key.encode(), properties, b"{}")
