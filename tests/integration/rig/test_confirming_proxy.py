"""The proxy that confirms the messages for an exchange and drops them."""

import asyncio

import aio_pika
import pytest
from tests.rig.tcp_proxy import ConfirmingProxy

pytestmark = pytest.mark.broker

COUNT = 40  # messages to each exchange, published at once
LARGE = b"x" * 300_000  # bytes, more than one frame
DROPPED, KEPT = "dropped", "kept"


async def test_proxy_confirms_every_message_and_drops_those_for_one_exchange(amqp_url: str) -> None:
    async with ConfirmingProxy.open(amqp_url) as proxy:
        connection = await aio_pika.connect(proxy.url)
        async with connection:
            channel = await connection.channel(publisher_confirms=True)
            exchanges = [await channel.declare_exchange(name, "fanout") for name in (DROPPED, KEPT)]
            queues = [await channel.declare_queue(exclusive=True) for _ in exchanges]
            for exchange, queue in zip(exchanges, queues, strict=True):
                await queue.bind(exchange)
            await exchanges[0].publish(aio_pika.Message(b"before"), "")
            proxy.set_condition({"drops": [DROPPED]})

            async with asyncio.timeout(30):
                await asyncio.gather(
                    *(
                        exchange.publish(aio_pika.Message(LARGE if number % 10 == 0 else b"x"), "")
                        for number in range(COUNT)
                        for exchange in exchanges
                    )
                )
            proxy.set_condition({})
            await exchanges[0].publish(aio_pika.Message(b"after"), "")
            depths = [
                (await channel.declare_queue(queue.name, passive=True)).declaration_result
                for queue in queues
            ]

    assert [depth.message_count for depth in depths] == [2, COUNT]
