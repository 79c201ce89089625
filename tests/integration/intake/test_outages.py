"""What the door does while something it needs is away, or asked too much."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

import asyncpg
import pytest
from aiormq.exceptions import PublishError
from tests.integration.intake.conftest import PATIENCE, Street
from tests.integration.intake.ledger import keep_run
from tests.integration.intake.test_queries import HOUR, NOW
from tests.rig.servers import Servers

from harebell.contract import amqp_names
from harebell.messaging.topology.bus import QUERY

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

PAUSE = {"key": "daily"}


@asynccontextmanager
async def locked_out(database: asyncpg.Connection) -> AsyncIterator[None]:
    """The intake's role has no connection and gets none."""
    await database.execute("ALTER ROLE harebell_intake CONNECTION LIMIT 0")
    try:
        await database.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE usename = 'harebell_intake'"
        )
        yield
    finally:
        await database.execute("ALTER ROLE harebell_intake CONNECTION LIMIT -1")


async def test_without_a_database_commands_pass_and_queries_are_held(intake: Street) -> None:
    await intake.ask("schedule.list", {})

    async with locked_out(intake.database):
        await intake.send("schedule.list", {}, exchange=amqp_names.QUERIES)
        await intake.send("schedule.pause", PAUSE)
        change = await intake.change()
        was_answered = intake.is_answered()

    answer = await intake.answer()

    assert change.verb == "schedule.pause"
    assert not was_answered
    assert answer["items"] == []


async def test_a_question_that_costs_too_much_is_refused(intake: Street) -> None:
    for number in range(7):
        await keep_run(intake.database, "acme", "daily", NOW - HOUR * number)
    await intake.database.execute(
        "CREATE POLICY slow ON runs USING (pg_sleep(1) IS NOT NULL);"
        "ALTER TABLE runs ENABLE ROW LEVEL SECURITY"
    )

    answer = await intake.ask("run.list", {})

    assert answer["error"]["code"] == "too_slow"


async def test_a_connection_that_is_closed_is_followed_by_another(
    servers: Servers, intake: Street
) -> None:
    if servers.private is None:
        pytest.skip("closes connections through the management API of a private broker")
    await intake.send("schedule.pause", PAUSE)
    await intake.change()

    for name in await _connections(servers, "harebell "):
        servers.management("DELETE", f"connections/{quote(name)}")
    await intake.send("schedule.resume", PAUSE)

    assert (await intake.change()).verb == "schedule.resume"


async def _connections(servers: Servers, prefix: str) -> list[str]:
    """Once the management API knows of all three, which takes seconds."""
    async with asyncio.timeout(PATIENCE):
        while True:
            listed = await asyncio.to_thread(servers.management, "GET", "connections")
            named = {each["name"]: each.get("user_provided_name", "") for each in listed}
            found = [name for name, given in named.items() if given.startswith(prefix)]
            if len(found) == 3:
                return found


async def test_a_queue_that_was_deleted_is_declared_again(intake: Street) -> None:
    await intake.ask("schedule.list", {})

    await intake.channel.queue_delete(QUERY.name)
    async with asyncio.timeout(PATIENCE):
        while not await reaches(intake, "schedule.list"):
            continue

    assert (await intake.answer())["ok"]


async def reaches(street: Street, query: str) -> bool:
    try:
        await street.send(query, {}, exchange=amqp_names.QUERIES)
    except PublishError:  # returned: its queue is not there
        return False
    return True
