"""The actor of each change: the login that the broker has verified."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import aio_pika
import pytest
from tests.acceptance.production import Production
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.client import Client, DeadLetterView
from harebell.contract.accepted_commands import AcceptedCommands
from harebell.contract.amqp_names import (
    CHANGES,
    CHANGES_BREAKER,
    CHANGES_DLQ,
    CHANGES_SCHEDULE,
)

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.broker_version]

ACME, OPERATOR = "acme", "harebell_operator_ann"
CLOSED = {"http": {"url": "http://127.0.0.1:9/hook"}}  # no server has this port
FAR = {"at": "2099-01-01T00:00:00Z"}
DOWNSTREAM = "http:127.0.0.1:9"
# The columns that name the actor of a change, and the rows that no command has changed.
ACTORS = {
    "schedules": ("actor", "true"),
    "schedule_versions": ("actor", "true"),
    "dead_letters": ("discarded_by", "discarded_at IS NOT NULL"),
    "failure_groups": ("changed_by", "changed_at IS NOT NULL"),
    "replays": ("actor", "true"),
    "replay_jobs": ("actor", "true"),
    "breakers": ("actor", "forced IS NOT NULL"),
}


@pytest.fixture(scope="module")
def production(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    root = tmp_path_factory.mktemp("actor")
    with Production.open(servers, root, tenants=(ACME,), operators=("ann",)) as production:
        production.start()
        yield production


@asynccontextmanager
async def accepted_commands(
    production: Production,
) -> AsyncIterator["asyncio.Queue[AcceptedCommands]"]:
    """Yield a queue that receives all accepted commands, as the administrator of the broker."""
    received: asyncio.Queue[AcceptedCommands] = asyncio.Queue()

    async def receive(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        received.put_nowait(AcceptedCommands.model_validate_json(message.body))

    async with await aio_pika.connect(production.stack.amqp_url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        for key in (CHANGES_SCHEDULE, CHANGES_DLQ, CHANGES_BREAKER):
            await queue.bind(CHANGES, key)
        await queue.consume(receive, no_ack=True)
        yield received


@pytest.mark.long
@pytest.mark.requirement("P10")
async def test_every_change_names_the_login_that_made_it(production: Production) -> None:
    async with (
        accepted_commands(production) as accepted,
        production.tenant(ACME) as acme,
        Client.connect(production.url(OPERATOR), tenant=ACME) as operator,
    ):
        await acme.put("far", FAR, CLOSED)
        await acme.harebell.pause(key="far", note="tenant")
        await operator.resume(key="far", note="operator")
        await operator.patch({"priority": 7}, key="far")
        for key in ("one", "two"):
            await acme.put(key, {"now": True}, CLOSED, retry={"max_attempts": 1})
        await acme.until_runs(2, "dead")
        first, second = await until(lambda: _two_dead_letters(acme.harebell))
        await acme.harebell.discard([first.id], note="gone")
        await operator.replay([second.id], note="again")
        await operator.open_breaker(DOWNSTREAM, note="maintenance")
        await acme.harebell.cancel(key="far")

        actors = {
            (table, row["actor"])
            for table, (column, condition) in ACTORS.items()
            for row in await acme.ledger.fetch(
                f"SELECT {column} AS actor FROM {table} WHERE {condition}"  # noqa: S608  # constants
            )
        }
        by_login = {ACME: 0, OPERATOR: 0}
        while not accepted.empty():
            commands = accepted.get_nowait()
            assert commands.actor is not None
            by_login[commands.actor] += 1

    assert ("dead_letters", ACME) in actors
    assert ("schedule_versions", ACME) in actors
    assert ("schedule_versions", OPERATOR) in actors
    assert ("replays", OPERATOR) in actors
    assert ("breakers", OPERATOR) in actors
    assert {actor for _, actor in actors} == {ACME, OPERATOR}
    assert by_login == {ACME: 6, OPERATOR: 4}


async def _two_dead_letters(harebell: Client) -> list[DeadLetterView]:
    found = [each async for each in harebell.dead_letters()]
    return found if len(found) == 2 else []
