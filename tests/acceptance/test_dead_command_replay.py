"""A command that died while intake could not run is applied after its replay."""

import asyncio
from collections.abc import Iterator
from typing import Final

import aio_pika
import orjson
import pytest
from tests.acceptance.production import Production
from tests.rig.polling import WAIT_TIMEOUT, until
from tests.rig.servers import Servers

from harebell.contract.amqp_names import tenant_exchange
from harebell.contract.errors import CommandRejected
from harebell.dev.plan import ServiceKind
from harebell.messaging.topology.declarations import DELIVERY_LIMIT

pytestmark = [
    pytest.mark.broker,
    pytest.mark.postgres,
    pytest.mark.requirement("P1"),
    pytest.mark.long,
]

ACME: Final = "acme"
KEY: Final = "daily"
SCHEDULE: Final = {
    "key": KEY,
    "when": {"at": "2049-01-01T00:00:00Z"},
    "target": {"task": {"name": "acme.report", "args": {}}},
}


@pytest.fixture
def production(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    with Production.open(servers, tmp_path_factory.mktemp("p"), tenants=(ACME,)) as opened:
        yield opened


async def send(production: Production) -> None:
    """Publish the command with the login of the tenant."""
    async with await aio_pika.connect(production.url(ACME)) as connection:
        channel = await connection.channel()
        exchange = await channel.get_exchange(tenant_exchange(ACME), ensure=False)
        message = aio_pika.Message(orjson.dumps(SCHEDULE), user_id=ACME, message_id="m-1")
        await exchange.publish(message, f"{ACME}.schedule.put")


async def use_up_deliveries(production: Production) -> None:
    """Receive the command as often as the broker delivers it, without an acknowledgement."""
    queue_name = f"harebell.intake.{ACME}"
    async with await aio_pika.connect(production.stack.amqp_url) as connection:
        for _ in range(DELIVERY_LIMIT + 1):
            async with connection.channel() as channel, asyncio.timeout(WAIT_TIMEOUT):
                queue = await channel.get_queue(queue_name, ensure=False)
                await anext(queue.iterator())  # the end of the channel returns the command


async def test_dead_command_is_applied_after_its_replay(production: Production) -> None:
    """The broker verifies the login of the dlq_inspector, and the change names the sender."""
    production.start(ServiceKind.DLQ_INSPECTOR, ServiceKind.TICKER)
    await send(production)
    await use_up_deliveries(production)
    production.start(ServiceKind.INTAKE)
    async with production.client(ACME) as acme:

        async def dead() -> list[object]:
            return [each.id async for each in acme.dead_letters()]

        async def is_stored() -> bool:
            try:
                return (await acme.schedule(key=KEY)).key == KEY
            except CommandRejected:
                return False

        [id_] = await until(dead, what="the dead letter")
        assert not await is_stored()
        response = await acme.replay([str(id_)])
        await until(is_stored, what="the schedule")
        versions = await acme.versions(key=KEY)

    assert [each.actor for each in versions] == [ACME]
    assert list(response.results.values()) == ["replayed"]
