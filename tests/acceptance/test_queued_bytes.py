"""The bytes in the intake queue of a tenant, which `harebell tenants usage` reads from RabbitMQ."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import aio_pika
import pytest
from tests.acceptance.production import Production
from tests.rig.command_line import harebell
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.contract.amqp_names import tenant_exchange
from harebell.dev.plan import ServiceKind
from harebell.messaging.topology.bus import tenant_intake_queue

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.broker_version]

BUSY, QUIET, OPERATOR = "acme", "umbrella", "harebell_operator"
POLICIES: Final = "tenants: {acme: {}, umbrella: {}}\n"
BODY: Final = b'{"key": "waiting"}'
MAX_BYTES_OF_PROPERTIES: Final = 1000  # RabbitMQ 4 counts the properties of a message too


@pytest.fixture
def production(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    root = tmp_path_factory.mktemp("queued-bytes")
    with Production.open(servers, root, tenants=(BUSY, QUIET)) as production:
        yield production


async def usage(production: Production, servers: Servers) -> dict[str, dict[str, Any]]:
    """Return the quota `queued_bytes` of each tenant, as the command prints it."""
    assert servers.private is not None
    url = servers.private.broker.management_url
    words = ("-o", "json", "tenants", "usage", "--all", "--management-url", url)
    code, output, messages = await harebell(*words, HAREBELL_AMQP_URL=production.url(OPERATOR))
    assert code == 0, messages
    return {
        each["tenant"]: quota
        for each in json.loads(output)
        for quota in each["quotas"]
        if quota["quota"] == "queued_bytes"
    }


@pytest.mark.long
@pytest.mark.requirement("P11")
async def test_usage_shows_the_bytes_that_wait_in_the_queue_of_each_tenant(
    production: Production, servers: Servers, tmp_path: Path
) -> None:
    """Consume one queue before intake does, so that its messages remain without intake."""
    policies = tmp_path / "tenants.yml"
    policies.write_text(POLICIES)
    async with (
        await aio_pika.connect(production.stack.amqp_url) as administrator,
        await aio_pika.connect(production.url(BUSY)) as connection,
    ):
        consumed = await administrator.channel()
        await consumed.set_qos(prefetch_count=1)
        queue = await consumed.get_queue(tenant_intake_queue(BUSY).name, ensure=False)
        received = asyncio.Event()

        async def keep(_: object) -> None:
            received.set()

        await queue.consume(keep)
        production.start(ServiceKind.INTAKE, ServiceKind.TICKER, tenants_file=policies)
        exchange = await (await connection.channel()).get_exchange(
            tenant_exchange(BUSY), ensure=False
        )
        for _ in range(3):
            message = aio_pika.Message(BODY, user_id=BUSY)
            await exchange.publish(message, f"{BUSY}.schedule.put")
        await received.wait()

        async def is_counted() -> bool:
            quotas = await usage(production, servers)
            return bool(quotas[BUSY]["used"])

        await until(is_counted, within=60)  # the broker counts every few seconds
        quotas = await usage(production, servers)

    assert 3 * len(BODY) <= quotas[BUSY]["used"] <= 3 * (len(BODY) + MAX_BYTES_OF_PROPERTIES)
    assert quotas[QUIET]["used"] == 0
    assert quotas[BUSY]["limit"] == 64 * 2**20
