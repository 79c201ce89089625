"""Connections that are cut and queues that are deleted under a dispatcher: no ticket is lost."""

from datetime import timedelta
from urllib.parse import quote

import pytest
from tests.integration.dispatcher.conftest import Station, until
from tests.rig.servers import Servers

from harebell.contract.errors import Unroutable
from harebell.messaging.ticket_messages import to_work_queues
from harebell.messaging.topology.bus import DISPATCHER

pytestmark = [pytest.mark.broker, pytest.mark.postgres]


def cut(servers: Servers, names: set[str]) -> set[str]:
    """Close the connections of these names, as an operator could; which there were."""
    found = set()
    for each in servers.management("GET", "connections"):
        name = each["client_properties"].get("connection_name")
        if name in names:
            servers.management("DELETE", f"connections/{quote(each['name'], safe='')}")
            found.add(name)
    return found


async def cut_both(servers: Servers, name: str) -> None:
    """Each once. The management API learns of a connection some seconds after it was made."""
    left = {f"{name} consumes", f"{name} publishes"}

    async def not_cut_yet() -> int:
        left.difference_update(cut(servers, left))
        return len(left)

    await until(not_cut_yet, 0)


async def test_a_cut_connection_loses_no_ticket_and_makes_none_late(
    station: Station, servers: Servers
) -> None:
    async with station.dispatcher():
        await station.until_consuming()
        (bundle,) = to_work_queues(station.soon(9.5, tickets=20), 20)
        await station.to_due(bundle.body)
        await cut_both(servers, "dispatcher-1")
        arrived = await station.work(20)

    assert len({each.ticket.identity for each in arrived}) == len(arrived) == 20
    assert all(each.early > timedelta(0) for each in arrived)
    assert await station.count(DISPATCHER.name) == 0


async def test_a_deleted_queue_is_declared_again_and_consumed(station: Station) -> None:
    async def staged() -> int:
        try:
            await station.stage(station.soon(0))
        except Unroutable:
            return 0
        return 1

    async with station.dispatcher():
        await station.until_consuming()
        await station.channel.queue_delete(DISPATCHER.name)
        await until(staged, 1)
        arrived = await station.work(1)

    assert len(arrived) == 1
