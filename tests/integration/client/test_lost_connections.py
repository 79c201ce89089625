"""The client while the broker, or the connection to it, is not available."""

import asyncio
from typing import TYPE_CHECKING

import pytest
from aio_pika import Message
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from pamqp.common import FieldTable
from yarl import URL

from harebell.client import BrokerUnavailable, Client, Unroutable
from harebell.client.rpc import RpcChannel
from harebell.connection.amqp import CHANNEL_REPLACE_PAUSE, Connection
from harebell.contract.errors import InvalidInput

if TYPE_CHECKING:
    from tests.integration.client.conftest import FakeIntake
    from tests.rig.tcp_proxy import TcpProxy

pytestmark = pytest.mark.broker

TENANT = "client-tests"
CANCELLED: dict[str, object] = {
    "ok": True,
    "id": "6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11",
    "version": 1,
    "status": "cancelled",
    "state": "cancelled",
}


async def test_request_is_repeated_with_the_same_id_after_a_lost_connection(
    proxy: "TcpProxy", intake: "FakeIntake"
) -> None:
    def cut_first(_: AbstractIncomingMessage) -> dict[str, object] | None:
        if len(intake.received) > 1:
            return CANCELLED
        proxy.cut()
        return None

    intake.respond = cut_first

    async with Client.connect(proxy.url, tenant=TENANT, timeout=5.0) as client:
        response = await client.cancel(key="hello")

    assert response.status == "cancelled"
    first, second = intake.received
    assert first.message_id == second.message_id


async def test_connection_is_opened_again_after_a_loss_between_calls(
    proxy: "TcpProxy", intake: "FakeIntake"
) -> None:
    intake.respond = lambda _: CANCELLED
    async with Client.connect(proxy.url, tenant=TENANT, timeout=5.0) as client:
        await client.cancel(key="one")
        proxy.cut()

        responses = await asyncio.gather(*(client.cancel(key=f"{n}") for n in range(10)))

    assert len(responses) == 10


async def test_request_fails_within_its_timeout_without_a_broker(proxy: "TcpProxy") -> None:
    async with Client.connect(proxy.url, tenant=TENANT, timeout=0.5) as client:
        await proxy.close()

        async with asyncio.timeout(2):
            with pytest.raises(BrokerUnavailable):
                await client.cancel(key="hello")


async def test_connect_fails_at_once_without_a_broker(proxy: "TcpProxy") -> None:
    await proxy.close()

    with pytest.raises(BrokerUnavailable):
        async with Client.connect(proxy.url):
            pass


async def test_request_to_a_missing_exchange_is_unroutable(amqp_url: str) -> None:
    connection = Connection(amqp_url, name="test", properties={})
    channel = RpcChannel(connection, timeout=5.0, user=None)

    with pytest.raises(Unroutable):
        await channel.request("client-tests.no-such-exchange", "schedule.get", b"{}", tenant=TENANT)
    await connection.close()


async def test_channel_is_replaced_after_the_broker_rejected_a_message(amqp_url: str) -> None:
    connection = Connection(amqp_url, name="test", properties={})
    first = await connection.channel()
    arguments: FieldTable = {"x-max-length": 0, "x-overflow": "reject-publish"}
    operator = Connection(amqp_url, name="operator", properties={})
    full = await (await operator.channel()).declare_queue("full", arguments=arguments)
    await full.bind("amq.fanout")

    channels: list[AbstractChannel] = []
    for _ in range(3):
        await asyncio.sleep(CHANNEL_REPLACE_PAUSE)
        with pytest.raises(BrokerUnavailable, match="a queue is full"):
            await connection.publish("amq.fanout", "", Message(b"[]"))
        channels.append(await connection.channel())
    await full.delete()
    with pytest.raises(Unroutable):
        await connection.publish("amq.fanout", "", Message(b"[]"))
    await operator.close()
    await connection.close()

    assert len({first, *channels}) == 1 + len(channels)
    assert first.is_closed


@pytest.mark.parametrize("url", ["", "nonsense", "http://localhost", "amqp://", "amqp://[::1"])
async def test_connect_rejects_a_text_that_is_no_amqp_url(url: str) -> None:
    with pytest.raises(InvalidInput, match="must have the form amqp://"):
        async with Client.connect(url):
            pass


async def test_client_uses_an_available_node_and_finds_another_one_after_its_loss(
    proxy: "TcpProxy", intake: "FakeIntake", amqp_url: str
) -> None:
    intake.respond = lambda _: CANCELLED
    unavailable = str(URL(proxy.url).with_port(1))
    async with Client.connect(f"{unavailable},{proxy.url}", tenant=TENANT, timeout=5.0) as client:
        await client.cancel(key="one")

    for _ in range(5):  # the order of the nodes is random
        nodes = f"{proxy.url},{amqp_url}"
        async with Client.connect(nodes, tenant=TENANT, timeout=5.0) as client:
            await client.cancel(key="two")
            await proxy.close()
            response = await client.cancel(key="three")
            assert response.status == "cancelled"


async def test_connect_reports_the_reason_without_an_available_node(proxy: "TcpProxy") -> None:
    unavailable = str(URL(proxy.url).with_port(1))

    with pytest.raises(BrokerUnavailable, match="cannot connect"):
        async with Client.connect(f"{unavailable},{unavailable}", tenant=TENANT):
            pass
