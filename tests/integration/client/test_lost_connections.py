"""The client when the broker, or the line to it, goes away."""

import asyncio
from typing import TYPE_CHECKING

import pytest
from aio_pika import Message
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage
from pamqp.common import FieldTable
from yarl import URL

from harebell.client import BrokerUnavailable, Client, Unroutable
from harebell.client.connection import CHANNEL_REPLACE_PAUSE, Connection
from harebell.client.rpc import RpcChannel
from harebell.contract.errors import InvalidInput

if TYPE_CHECKING:
    from tests.integration.client.conftest import Intake
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


async def test_a_question_whose_connection_was_lost_is_asked_again_under_the_same_id(
    line: "TcpProxy", intake: "Intake"
) -> None:
    def lose_the_first(_: AbstractIncomingMessage) -> dict[str, object] | None:
        if len(intake.received) > 1:
            return CANCELLED
        line.cut()
        return None

    intake.answer = lose_the_first

    async with Client.connect(line.url, tenant=TENANT, timeout=5.0) as harebell:
        answer = await harebell.cancel(key="hello")

    assert answer.status == "cancelled"
    first, second = intake.received
    assert first.message_id == second.message_id


async def test_a_connection_lost_between_calls_is_opened_again(
    line: "TcpProxy", intake: "Intake"
) -> None:
    intake.answer = lambda _: CANCELLED
    async with Client.connect(line.url, tenant=TENANT, timeout=5.0) as harebell:
        await harebell.cancel(key="one")
        line.cut()

        answers = await asyncio.gather(*(harebell.cancel(key=f"{n}") for n in range(10)))

    assert len(answers) == 10


async def test_a_broker_that_stays_away_is_an_error_in_time(line: "TcpProxy") -> None:
    async with Client.connect(line.url, tenant=TENANT, timeout=0.5) as harebell:
        await line.close()

        async with asyncio.timeout(2):
            with pytest.raises(BrokerUnavailable):
                await harebell.cancel(key="hello")


async def test_nobody_there_is_an_error_at_once(line: "TcpProxy") -> None:
    await line.close()

    with pytest.raises(BrokerUnavailable):
        async with Client.connect(line.url):
            pass


async def test_an_exchange_that_is_not_there_is_unroutable(amqp_url: str) -> None:
    link = Connection(amqp_url, name="test", properties={})
    correspondence = RpcChannel(link, timeout=5.0, login=None)

    with pytest.raises(Unroutable):
        await correspondence.request("client-tests.no-such-exchange", TENANT, "schedule.get", b"{}")
    await link.close()


async def test_what_a_broker_refuses_is_published_on_another_channel(amqp_url: str) -> None:
    link = Connection(amqp_url, name="test", properties={})
    first = await link.channel()
    arguments: FieldTable = {"x-max-length": 0, "x-overflow": "reject-publish"}
    operator = Connection(amqp_url, name="operator", properties={})
    full = await (await operator.channel()).declare_queue("full", arguments=arguments)
    await full.bind("amq.fanout")

    channels: list[AbstractChannel] = []
    for _ in range(3):
        await asyncio.sleep(CHANNEL_REPLACE_PAUSE)
        with pytest.raises(BrokerUnavailable, match="a queue is full"):
            await link.publish("amq.fanout", "", Message(b"[]"))
        channels.append(await link.channel())
    await full.delete()
    with pytest.raises(Unroutable):
        await link.publish("amq.fanout", "", Message(b"[]"))
    await operator.close()
    await link.close()

    assert len({first, *channels}) == 1 + len(channels)
    assert first.is_closed


@pytest.mark.parametrize("url", ["", "nonsense", "http://localhost", "amqp://", "amqp://[::1"])
async def test_what_is_no_amqp_url_is_said_to_be_none(url: str) -> None:
    with pytest.raises(InvalidInput, match="is not like amqp://"):
        async with Client.connect(url):
            pass


async def test_of_several_nodes_one_that_lives_is_found_and_found_again(
    line: "TcpProxy", intake: "Intake", amqp_url: str
) -> None:
    intake.answer = lambda _: CANCELLED
    nobody = str(URL(line.url).with_port(1))
    async with Client.connect(f"{nobody},{line.url}", tenant=TENANT, timeout=5.0) as harebell:
        await harebell.cancel(key="one")

    for _ in range(5):  # in an order of chance
        nodes = f"{line.url},{amqp_url}"
        async with Client.connect(nodes, tenant=TENANT, timeout=5.0) as harebell:
            await harebell.cancel(key="two")
            await line.close()
            answer = await harebell.cancel(key="three")
            assert answer.status == "cancelled"


async def test_when_no_node_answers_the_reason_is_told(line: "TcpProxy") -> None:
    nobody = str(URL(line.url).with_port(1))
    with pytest.raises(BrokerUnavailable, match="cannot connect"):
        async with Client.connect(f"{nobody},{nobody}", tenant=TENANT):
            pass
