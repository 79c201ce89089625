"""The topology value and a broker agree."""

import pytest

from harebell.connection.amqp import connect
from harebell.messaging.declare import declare, find_differences
from harebell.messaging.topology.bus import SYSTEM

pytestmark = [pytest.mark.broker, pytest.mark.broker_version]


async def test_broker_has_no_difference_after_repeated_declarations(amqp_url: str) -> None:
    connection = await connect(amqp_url, name="test", properties={})
    async with connection:
        before = await find_differences(connection, SYSTEM)
        await declare(connection, SYSTEM)
        await declare(connection, SYSTEM)
        after = await find_differences(connection, SYSTEM)

    assert len(before) == len(SYSTEM.exchanges) + len(SYSTEM.queues)
    assert after == []
