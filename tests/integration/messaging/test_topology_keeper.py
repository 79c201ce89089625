"""What an operator deletes under a running service is declared again."""

import asyncio
from collections.abc import AsyncIterator

import aio_pika
import pytest
from tests.acceptance.stack import until
from tests.rig.servers import as_role

from harebell.bootstrap.service_context import ServiceContext, open_service
from harebell.contract.amqp_names import WORK
from harebell.contract.errors import Unroutable
from harebell.messaging.publisher import OutgoingMessage
from harebell.runtime.settings import ServiceSettings

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

TICKET = OutgoingMessage(
    exchange=WORK,
    routing_key="default.normal",
    body=b"[]",
    type="harebell.test.v1",
    message_id="m-1",
)


@pytest.fixture
async def parts(amqp_url: str, database_url: str) -> AsyncIterator[ServiceContext]:
    urls = {"AMQP_URL": amqp_url, "DATABASE_URL": as_role(database_url, "dispatcher")}
    settings = ServiceSettings.load({f"HAREBELL_{name}": url for name, url in urls.items()})
    async with open_service(settings, "dispatcher", asyncio.Event()) as opened:
        keeping = asyncio.create_task(opened.run())
        yield opened
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def test_an_exchange_that_is_deleted_is_there_again_when_a_message_has_missed_it(
    parts: ServiceContext, amqp_url: str
) -> None:
    await parts.publisher.publish(TICKET)

    async with await aio_pika.connect(amqp_url) as connection:
        await (await connection.channel()).exchange_delete(WORK)
    with pytest.raises(Unroutable):
        await parts.publisher.publish(TICKET)

    async def is_routed() -> bool:
        try:
            await parts.publisher.publish(TICKET)
        except Unroutable:
            return False
        return True

    await until(is_routed, what="the exchange that was deleted")
