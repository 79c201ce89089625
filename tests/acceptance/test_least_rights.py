"""The definitions file: each service has a separate user with the minimum of permissions."""

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from urllib.parse import quote, urlsplit

import aio_pika
import pytest
from aiormq.exceptions import ChannelAccessRefused
from pydantic import SecretStr
from tests.acceptance.production import Production
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import now
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.audit.model.report import MissedHeartbeat
from harebell.audit.watchdog import publish_missed_heartbeats
from harebell.client import Client, DeadLetterView, NotAllowed
from harebell.contract.amqp_names import DEAD, EVENTS, QUERIES, WORK, Lane
from harebell.messaging.declare import find_differences
from harebell.messaging.topology.bus import EVENTS_RECENT, SYSTEM, tenant_topology
from harebell.runtime.settings import TickerSettings
from harebell.ticker.recovery.executor_liveness import MIN_CONNECTION_AGE, ExecutorLiveness

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.broker_version]

ACME, OTHER = "acme", "umbrella"
TOPOLOGY = SYSTEM + tenant_topology(ACME) + tenant_topology(OTHER)
MAY_PUBLISH = {
    "harebell_intake": {"changes", "events", "dead"},
    "harebell_ticker": {"delay", "due", "control", "events", "dead"},
    "harebell_dispatcher": {"delay", "due", "work", "control", "events", "dead"},
    "harebell_executor": {"delay", "due", "events", "dead"},
    "harebell_dlq_inspector": {"commands", "delay", "due", "events", "dead"},
    "harebell_watchdog": set(),  # the user may publish only one event
    "harebell_monitor": set(),
    "harebell_operator": {"commands", "queries"},
    ACME: {"tenant.acme"},
}


@pytest.fixture(scope="module")
def production(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    root = tmp_path_factory.mktemp("production")
    with Production.open(servers, root, tenants=(ACME, OTHER), declares=True) as production:
        production.start()
        yield production


@pytest.mark.long
async def test_imported_definitions_equal_the_topology_of_the_services(
    production: Production, servers: Servers
) -> None:
    async with await aio_pika.connect(production.stack.amqp_url) as connection:
        problems = await find_differences(connection, TOPOLOGY)
    host = quote(urlsplit(production.stack.amqp_url).path.removeprefix("/"), safe="")
    found = servers.management("GET", f"bindings/{host}")

    bound = {(each["source"], each["routing_key"], each["destination"]) for each in found}
    required = {(each.exchange, each.routing_key, each.queue) for each in TOPOLOGY.bindings}
    assert problems == []
    assert required <= bound


async def test_services_with_separate_users_run_retry_replay_and_cancel(
    production: Production, target: Target
) -> None:
    async with production.tenant(ACME) as acme:
        retry = {"max_attempts": 2, "backoff": {"base": "100ms"}}
        await acme.put("good", {"after": "4s"}, target.http("rights-good"))
        await acme.put("flaky", {"now": True}, target.http("rights-flaky", fail=1), retry=retry)
        broken = target.http("rights-broken", broken="rights")
        await acme.put("broken", {"now": True}, broken, retry=retry)
        await acme.put("slow", {"now": True}, target.http("rights-slow", sleep=20))

        await acme.until_runs(1, "dead")
        await until(partial(_called, target, "rights-slow"))
        await acme.harebell.cancel(key="slow")
        await acme.until_runs(1, "cancelled")
        dead_letters = await until(lambda: _open(acme.harebell))
        target.fix("rights")
        await acme.harebell.replay([dead_letter.id for dead_letter in dead_letters])

        succeeded = await acme.until_runs(3, "succeeded")

    assert [row["replay_number"] for row in succeeded if row["attempt"] == 1].count(1) == 1
    assert len(dead_letters) == 1


async def test_amqp_target_reaches_an_exchange_of_the_tenant(
    production: Production,
) -> None:
    async with (
        await aio_pika.connect(production.url(ACME)) as connection,
        production.client(ACME) as harebell,
    ):
        channel = await connection.channel()
        exchange = await channel.declare_exchange("acme.orders", aio_pika.ExchangeType.TOPIC)
        inbox = await channel.declare_queue("acme.inbox", exclusive=True)
        await inbox.bind(exchange, "#")
        outcomes = await channel.declare_queue("acme.outcomes", exclusive=True)
        await outcomes.bind(EVENTS, f"{ACME}.run.succeeded")
        amqp = {"exchange": "acme.orders", "routing_key": "new", "json": {"n": 1}}
        await harebell.put({"key": "order", "when": {"now": True}, "target": {"amqp": amqp}})

        order = await until(lambda: inbox.get(no_ack=True, fail=False))
        event = await until(lambda: outcomes.get(no_ack=True, fail=False))

    assert order is not None
    assert json.loads(order.body) == {"n": 1}
    assert event is not None


@pytest.mark.requirement("S75")
@pytest.mark.parametrize("user", sorted(MAY_PUBLISH))
async def test_user_publishes_only_to_the_exchanges_of_its_part(
    user: str, production: Production
) -> None:
    names = {exchange.name for exchange in TOPOLOGY.exchanges}
    allowed = {name for name in names if await _may_publish(production.url(user), name)}

    assert allowed == {f"harebell.{name}" for name in MAY_PUBLISH[user]}


@pytest.mark.parametrize("user", sorted(MAY_PUBLISH))
async def test_no_user_declares_or_deletes_a_queue_of_harebell(
    user: str, production: Production
) -> None:
    async with await aio_pika.connect(production.url(user)) as connection:
        channel = await connection.channel()
        with pytest.raises(ChannelAccessRefused):
            await channel.declare_queue("harebell.mine")
        channel = await connection.channel()
        with pytest.raises(ChannelAccessRefused):
            await channel.queue_delete(EVENTS_RECENT.name)


async def test_ticker_user_finds_dead_executors_and_empty_lanes(
    production: Production,
) -> None:
    url, database = production.url("harebell_ticker"), production.stack.database_url
    liveness = ExecutorLiveness(
        TickerSettings(amqp_url=SecretStr(url), database_url=SecretStr(database))
    )
    try:
        await liveness.is_gone("executor-none")
        await asyncio.sleep(MIN_CONNECTION_AGE + 0.5)

        assert await liveness.is_gone("executor-none")
        assert await liveness.is_queue_empty("default", Lane.LOW)
    finally:
        await liveness.close()


@pytest.mark.requirement("ASK-16")
async def test_tenant_can_neither_publish_nor_subscribe_for_another_tenant(
    production: Production,
) -> None:
    async with Client.connect(production.url(OTHER), tenant=ACME) as harebell:
        with pytest.raises(NotAllowed):
            await harebell.cancel(key="good")
    async with await aio_pika.connect(production.url(OTHER)) as connection:
        for received in (f"{ACME}.#", "#"):
            channel = await connection.channel()
            queue = await channel.declare_queue(f"{OTHER}.events", exclusive=True)
            with pytest.raises(ChannelAccessRefused):
                await queue.bind(EVENTS, received)
        for foreign in (EVENTS_RECENT.name, DEAD, QUERIES, f"{WORK}.default.normal"):
            channel = await connection.channel()
            with pytest.raises(ChannelAccessRefused):
                await (await channel.get_queue(foreign, ensure=False)).get(fail=False)


async def test_watchdog_user_publishes_only_missed_heartbeats(production: Production) -> None:
    missed_heartbeat = MissedHeartbeat("ticker", now())
    url = production.url("harebell_watchdog")
    async with await aio_pika.connect(production.stack.amqp_url) as connection:
        channel = await connection.channel()
        watchdog_queue = await channel.declare_queue(exclusive=True)
        await watchdog_queue.bind(EVENTS, f"{ACME}.liveness.missed")

        assert await publish_missed_heartbeats(url, ACME, [missed_heartbeat], now=now()) == []
        received = await until(lambda: watchdog_queue.get(no_ack=True, fail=False))

    assert received is not None
    assert json.loads(received.body)[0]["subject"] == "ticker"


async def _open(harebell: Client) -> list[DeadLetterView]:
    return [dead_letter async for dead_letter in harebell.dead_letters(state="open")]


async def _called(target: Target, path: str) -> bool:
    return bool(target.calls(path))


async def _may_publish(url: str, exchange: str) -> bool:
    """Return whether the broker accepts a publish, which also counts without a bound queue."""
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel(publisher_confirms=True)
        message = aio_pika.Message(b"[]")
        target = await channel.get_exchange(exchange, ensure=False)
        try:
            async with asyncio.timeout(5):
                await target.publish(message, f"{ACME}.run.none", mandatory=False)
        except ChannelAccessRefused:
            return False
    return True
