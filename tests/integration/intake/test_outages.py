"""Tests of intake without a database, without a connection, and with an expensive query."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

import asyncpg
import pytest
from aiormq.exceptions import PublishError
from tests.integration.intake.conftest import TIMEOUT, IntakeBus
from tests.integration.intake.ledger import insert_run
from tests.integration.intake.test_queries import HOUR, NOW
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.contract import amqp_names
from harebell.messaging.topology.bus import QUERY

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

PAUSE = {"key": "daily"}
CONNECTIONS = 4  # of intake: the publisher and three consumers


@asynccontextmanager
async def without_database(database: asyncpg.Connection) -> AsyncIterator[None]:
    """Close the connections of the role of intake, and reject new ones."""
    await database.execute("ALTER ROLE harebell_intake CONNECTION LIMIT 0")
    try:
        await database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE usename = 'harebell_intake'"
        )
        yield
    finally:
        await database.execute("ALTER ROLE harebell_intake CONNECTION LIMIT -1")


async def test_commands_pass_and_queries_wait_when_the_database_is_away(
    intake: IntakeBus,
) -> None:
    await intake.query("schedule.list", {})

    async with without_database(intake.database):
        await intake.send("schedule.list", {}, exchange=amqp_names.QUERIES)
        await intake.send("schedule.pause", PAUSE)
        commands = await intake.next_commands()
        had_response = intake.has_response()

    response = await intake.next_response()

    assert commands.verb == "schedule.pause"
    assert not had_response
    assert response["items"] == []


@pytest.mark.unshifted
async def test_query_is_rejected_when_its_statement_takes_too_long(intake: IntakeBus) -> None:
    for number in range(7):
        await insert_run(intake.database, "acme", "daily", NOW - HOUR * number)
    await intake.database.execute(
        "CREATE POLICY slow ON runs USING (pg_sleep(1) IS NOT NULL);"
        "ALTER TABLE runs ENABLE ROW LEVEL SECURITY"
    )

    response = await intake.query("run.list", {})

    assert response["error"]["code"] == "too_slow"


async def test_intake_opens_a_new_connection_when_the_broker_closes_one(
    servers: Servers, core_url: str, intake: IntakeBus
) -> None:
    if servers.private is None:
        pytest.skip("closes connections through the management API of a private broker")
    await intake.send("schedule.pause", PAUSE)
    await intake.next_commands()

    for name in await _connections(servers, core_url, "harebell "):
        servers.management("DELETE", f"connections/{quote(name)}")
    await intake.send("schedule.resume", PAUSE)

    assert (await intake.next_commands()).verb == "schedule.resume"


async def _connections(servers: Servers, core_url: str, prefix: str) -> list[str]:
    """Return the connections of intake. The management API lists them after some seconds."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            listed = await asyncio.to_thread(servers.connections, core_url)
            client_names = {each["name"]: each.get("user_provided_name", "") for each in listed}
            names = [name for name, client in client_names.items() if client.startswith(prefix)]
            if len(names) == CONNECTIONS:
                return names


async def test_intake_declares_a_deleted_queue_again(intake: IntakeBus) -> None:
    await intake.query("schedule.list", {})

    await intake.channel.queue_delete(QUERY.name)
    await until(lambda: is_routed(intake, "schedule.list"), within=TIMEOUT, what="a queue")

    assert (await intake.next_response())["ok"]


async def is_routed(bus: IntakeBus, query: str) -> bool:
    """Send a query, and return whether the broker routed it to a queue."""
    try:
        await bus.send(query, {}, exchange=amqp_names.QUERIES)
    except PublishError:
        return False
    return True
