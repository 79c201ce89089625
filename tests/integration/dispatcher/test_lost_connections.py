"""Tests of closed connections and deleted queues: a dispatcher loses no ticket."""

from datetime import timedelta
from urllib.parse import quote

import pytest
from tests.integration.dispatcher.conftest import DispatcherRig, until_equal
from tests.rig.servers import Servers

from harebell.contract.errors import Unroutable
from harebell.messaging.ticket_messages import to_work_queues
from harebell.messaging.topology.bus import DISPATCHER

pytestmark = [pytest.mark.broker, pytest.mark.postgres]


def close_connections(servers: Servers, amqp_url: str, names: set[str]) -> set[str]:
    """Close the connections with these names. Return the names of the closed ones."""
    closed = set()
    for each in servers.connections(amqp_url):
        name = each["client_properties"].get("connection_name")
        if name in names:
            servers.management("DELETE", f"connections/{quote(each['name'], safe='')}")
            closed.add(name)
    return closed


async def close_both(servers: Servers, amqp_url: str, name: str) -> None:
    """Close both connections of a dispatcher once.

    The management API lists a connection some seconds after it was opened.
    """
    remaining = {f"{name} consumes", f"{name} publishes"}

    async def close_listed() -> int:
        remaining.difference_update(close_connections(servers, amqp_url, remaining))
        return len(remaining)

    await until_equal(close_listed, 0)


async def test_no_ticket_is_lost_or_late_when_the_connections_are_closed(
    rig: DispatcherRig, servers: Servers, amqp_url: str
) -> None:
    async with rig.dispatcher():
        await rig.until_consuming()
        (batch,) = to_work_queues(rig.tickets_due_in(9.5, tickets=20), 20)
        await rig.publish_due(batch.body)
        await close_both(servers, amqp_url, "dispatcher-1")
        received = await rig.receive(20)

    assert len({each.ticket.identity for each in received}) == len(received) == 20
    assert all(each.lead > timedelta(0) for each in received)
    assert await rig.count(DISPATCHER.name) == 0


async def test_dispatcher_declares_a_deleted_queue_again_and_consumes_it(
    rig: DispatcherRig,
) -> None:
    async def staged() -> int:
        try:
            await rig.stage(rig.tickets_due_in(0))
        except Unroutable:
            return 0
        return 1

    async with rig.dispatcher():
        await rig.until_consuming()
        await rig.channel.queue_delete(DISPATCHER.name)
        await until_equal(staged, 1)
        received = await rig.receive(1)

    assert len(received) == 1
