"""A running service declares deleted context of the topology again."""

import asyncio
from collections.abc import AsyncIterator

import aio_pika
import pytest
from tests.rig.polling import until
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
async def context(amqp_url: str, database_url: str) -> AsyncIterator[ServiceContext]:
    settings = ServiceSettings.load(
        {
            "HAREBELL_AMQP_URL": amqp_url,
            "HAREBELL_DATABASE_URL": as_role(database_url, "dispatcher"),
            "HAREBELL_TOPOLOGY_MODE": "declare",
        }
    )
    async with open_service(settings, "dispatcher", asyncio.Event()) as opened:
        keeping = asyncio.create_task(opened.run())
        yield opened
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def test_deleted_exchange_is_declared_again_after_an_unroutable_message(
    context: ServiceContext, amqp_url: str
) -> None:
    await context.publisher.publish(TICKET)

    async with await aio_pika.connect(amqp_url) as connection:
        await (await connection.channel()).exchange_delete(WORK)
    with pytest.raises(Unroutable):
        await context.publisher.publish(TICKET)

    async def is_routed() -> bool:
        try:
            await context.publisher.publish(TICKET)
        except Unroutable:
            return False
        return True

    await until(is_routed, what="the deleted exchange")
