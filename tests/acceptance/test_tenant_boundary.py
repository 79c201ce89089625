"""The boundary between tenants: one login sends by every route, and the victim's rows stay equal.

RabbitMQ checks a routing key where a client publishes to a topic exchange or binds from it.
It does not check the key where the exchange is a destination, which opens three routes.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import aio_pika
import asyncpg
import orjson
import pytest
from aiormq.exceptions import ChannelAccessRefused, ChannelPreconditionFailed
from tests.acceptance.attacker import EVENTS, Attacker, error_codes
from tests.acceptance.floods import MAX_SLOW_ANSWER
from tests.acceptance.production import Production
from tests.acceptance.scrape import Scrape
from tests.acceptance.stack import Tenant
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.client import Client
from harebell.contract.amqp_names import (
    CHANGES,
    CHANGES_DLQ,
    CHANGES_SCHEDULE,
    COMMANDS,
    DEAD,
    QUERIES,
    UNDELIVERED,
    tenant_exchange,
)
from harebell.contract.ids import RunKey
from harebell.dev.plan import ServiceKind
from harebell.domain.run_states import fencing_token
from harebell.messaging.topology.bus import DEAD_LETTERS, DLQ, INTAKE, QUERY, undelivered_queue

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.broker_version]

ACME, UMBRELLA, OPERATOR = "acme", "umbrella", "harebell_operator"
SECRET: Final = "Bearer victims-token"  # noqa: S105  # of a throwaway schedule
CLOSED: Final = "http://127.0.0.1:9/hook"  # no server has this port
FAR: Final = "2099-01-01T00:00:00Z"
DOWNSTREAM: Final = "http:127.0.0.1:9"
ROUTES: Final = ("by_binding", "by_dead_letter", "by_alternate")
# The exchanges of Harebell to which a tenant may publish by no route.
FOREIGN: Final = (
    COMMANDS,
    QUERIES,
    CHANGES,
    DEAD,
    UNDELIVERED,
    undelivered_queue(ACME).name,
    undelivered_queue(UMBRELLA).name,
    tenant_exchange(UMBRELLA),
)
TABLES: Final = ("schedules", "schedule_versions", "schedule_state", "runs", "dead_letters")
# The columns of these tables that only the passage of time changes.
ROWS: Final = "SELECT to_jsonb(t) AS row FROM {} t ORDER BY to_jsonb(t)::text"


@dataclass(kw_only=True)
class Victim:
    """The tenant `umbrella` with a schedule of a far year and a dead letter."""

    production: Production
    harebell: Client
    ledger: asyncpg.Connection
    dead_letter_id: str
    delegated: dict[str, Any]  # the run id and the fencing token of a running run
    requests: list[tuple[str, dict[str, Any]]] = field(init=False)

    def __post_init__(self) -> None:
        put = {"key": "planted", "when": {"now": True}, "target": {"http": {"url": "http://a.b/"}}}
        ids = {"ids": [self.dead_letter_id], "note": "gone"}
        self.requests = [
            (f"{UMBRELLA}.schedule.put", put),
            (f"{UMBRELLA}.schedule.cancel", {"key": "secret"}),
            (f"{UMBRELLA}.schedule.pause", {"key": "secret"}),
            (f"{UMBRELLA}.dlq.discard", ids),
            (f"{UMBRELLA}.dlq.replay", ids),
            (f"{UMBRELLA}.run.heartbeat", self.delegated),
            (f"{UMBRELLA}.run.complete", self.delegated),
            (f"{UMBRELLA}.run.fail", self.delegated | {"code": "stolen"}),
            ("harebell.breaker.open", {"downstream": DOWNSTREAM}),
            (f"{UMBRELLA}.schedule.get", {"key": "secret"}),
            (f"{UMBRELLA}.schedule.list", {}),
            (f"{UMBRELLA}.run.list", {}),
            (f"{UMBRELLA}.dlq.list", {}),
            (f"{UMBRELLA}.dlq.get", {"id": self.dead_letter_id}),
            ("harebell.breaker.list", {}),
        ]

    async def rows(self) -> list[str]:
        """Return all rows, as far as a command can change them."""
        tables = (*TABLES, "breakers", "command_results", "replays")
        return [
            record["row"]
            for table in tables
            for record in await self.ledger.fetch(ROWS.format(table))
        ]


@pytest.fixture(scope="module")
def production(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    root = tmp_path_factory.mktemp("boundary")
    with Production.open(servers, root, tenants=(ACME, UMBRELLA), declares=True) as production:
        production.start()
        yield production


@pytest.fixture
async def victim(production: Production) -> AsyncIterator[Victim]:
    async with production.tenant(UMBRELLA) as umbrella:
        http = {"url": CLOSED, "headers": {"Authorization": SECRET}}
        await umbrella.put("secret", {"at": FAR}, {"http": http})
        dead = [each async for each in umbrella.harebell.dead_letters()]
        if not dead:
            broken = {"http": {"url": CLOSED}}
            await umbrella.put("broken", {"now": True}, broken, retry={"max_attempts": 1})
            await umbrella.until_runs(1, "dead")
            dead = await until(lambda: _dead_letters(umbrella.harebell))
        yield Victim(
            production=production,
            harebell=umbrella.harebell,
            ledger=umbrella.ledger,
            dead_letter_id=str(dead[0].id),
            delegated=await delegated_run(umbrella, production.url(UMBRELLA)),
        )


async def delegated_run(umbrella: Tenant, url: str) -> dict[str, Any]:
    """Return the run id and the fencing token of a run that a worker of the victim completes."""
    running = await umbrella.runs("running")
    if not running:
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange(f"{UMBRELLA}.work", durable=True)
            queue = await channel.declare_queue(f"{UMBRELLA}.work", durable=True)
            await queue.bind(exchange, "")
        call = {"exchange": f"{UMBRELLA}.work", "completion": "worker", "heartbeat": "1h"}
        await umbrella.put("delegated", {"now": True}, {"amqp": call})

    async def delegated() -> list[dict[str, Any]]:
        return [run for run in await umbrella.runs("running") if run["delegated_until"]]

    running = await until(delegated, what="a delegated run")
    key = RunKey(running[0]["scheduled_for"], running[0]["schedule_id"])
    token = fencing_token(running[0]["epoch"], running[0]["seq"])
    return {"run_id": str(key), "fencing_token": token}


async def _dead_letters(harebell: Client) -> list[Any]:
    return [each async for each in harebell.dead_letters()]


async def refusals(production: Production, code: str) -> float:
    """Return the number of refused messages of intake and of the dlq_inspector."""
    scrapes = [
        await Scrape.collect_one(production.stack, kind, 1)
        for kind in (ServiceKind.INTAKE, ServiceKind.DLQ_INSPECTOR)
    ]
    return sum(each.total("harebell_refused_messages_total", code=code) for each in scrapes)


@pytest.mark.requirement("P1", "P2")
@pytest.mark.parametrize("has_user_id", [True, False], ids=["with-user-id", "without-user-id"])
@pytest.mark.parametrize(
    ("route", "code"),
    [("publish", "not_your_tenant"), *((each, "foreign_route") for each in ROUTES)],
)
async def test_no_route_reads_or_changes_anything_of_another_tenant(
    route: str, code: str, victim: Victim, *, has_user_id: bool
) -> None:
    production = victim.production
    before, refused_before = await victim.rows(), await refusals(production, code)
    url = production.url(ACME)

    async with Attacker.open(url, ACME, has_user_id=has_user_id) as attacker:
        # A login that the broker has not verified owns no queue, so it gets no answer.
        if has_user_id:
            answers = await attacker.answers_to(getattr(attacker, route), victim.requests)
            assert error_codes(answers) == [code] * len(victim.requests)
        else:
            for key, body in victim.requests:
                await getattr(attacker, route)(attacker.exchange, key, attacker.message(body))

        async def is_counted() -> bool:
            refused = await refusals(production, code) - refused_before
            return refused >= len(victim.requests)

        await until(is_counted, what="the count of the refusals")
        assert attacker.answers.empty()

    assert await victim.rows() == before
    shown = await victim.harebell.schedule(key="secret")
    assert shown.state == "active"


@pytest.mark.requirement("P1")
async def test_login_acts_for_its_own_tenant_without_any_foreign_row(victim: Victim) -> None:
    before = await victim.rows()
    async with Attacker.open(victim.production.url(ACME), ACME) as attacker:
        own = {"key": "own", "when": {"every": "7d"}, "target": {"task": {"name": "harebell.echo"}}}
        await attacker.publish(attacker.exchange, f"{ACME}.schedule.put", attacker.message(own))
        put = await attacker.answer()
        await attacker.publish(attacker.exchange, f"{ACME}.schedule.list", attacker.message({}))
        schedules = await attacker.answer()
        await attacker.publish(attacker.exchange, f"{ACME}.dlq.list", attacker.message({}))
        dead_letters = await attacker.answer()

    assert put["ok"] is True
    assert [each["key"] for each in schedules["items"]] == ["own"]
    assert dead_letters["items"] == []
    assert set(before) <= set(await victim.rows())


@pytest.mark.requirement("P1", "S59")
async def test_login_reports_only_about_the_delegated_runs_of_its_own_tenant(
    victim: Victim,
) -> None:
    before = await victim.rows()
    async with Attacker.open(victim.production.url(ACME), ACME) as attacker:
        answers = []
        for verb, more in (("heartbeat", {}), ("complete", {}), ("fail", {"code": "stolen"})):
            message = attacker.message(victim.delegated | more)
            await attacker.publish(attacker.exchange, f"{ACME}.run.{verb}", message)
            answers.append(await attacker.answer())
    unchanged = await victim.rows()

    renewed = await victim.harebell.heartbeat(**victim.delegated)

    assert [each["error"]["code"] for each in answers] == ["not_found"] * 3
    assert unchanged == before
    assert (renewed.status, renewed.state) == ("renewed", "running")


@pytest.mark.requirement("P1", "P10")
@pytest.mark.parametrize("verb", ["schedule.put", "schedule.list", "dlq.list"])
async def test_message_without_a_verified_login_is_refused(verb: str, victim: Victim) -> None:
    production = victim.production
    before = await refusals(production, "not_your_tenant")
    rows = await victim.rows()
    async with (
        Attacker.open(production.url(ACME), ACME, has_user_id=False) as attacker,
        await aio_pika.connect(production.url(ACME)) as connection,
    ):
        direct = await connection.channel()
        answers: asyncio.Queue[bytes] = asyncio.Queue()

        async def receive(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            answers.put_nowait(message.body)

        replies = await direct.get_queue("amq.rabbitmq.reply-to", ensure=False)
        await replies.consume(receive, no_ack=True)
        message = attacker.message({}, reply_to="amq.rabbitmq.reply-to")
        own = await direct.get_exchange(attacker.exchange, ensure=False)
        await own.publish(message, f"{ACME}.{verb}")
        async with asyncio.timeout(20):
            answer = await answers.get()

    assert b'"not_your_tenant"' in answer
    assert await refusals(production, "not_your_tenant") == before + 1
    assert await victim.rows() == rows


@pytest.mark.requirement("P1", "P2")
@pytest.mark.parametrize("exchange", FOREIGN)
@pytest.mark.parametrize("route", ["publish", *ROUTES])
async def test_broker_refuses_each_route_to_a_foreign_exchange(
    route: str, exchange: str, production: Production
) -> None:
    keys = (f"{ACME}.schedule.put", f"{UMBRELLA}.schedule.put", CHANGES_SCHEDULE, CHANGES_DLQ)
    for key in keys:
        async with Attacker.open(production.url(ACME), ACME) as attacker:
            with pytest.raises(ChannelAccessRefused):
                await getattr(attacker, route)(exchange, key, attacker.message({}))


@pytest.mark.requirement("P1")
async def test_broker_refuses_forged_logins_and_queues_of_others(production: Production) -> None:
    async with Attacker.open(production.url(ACME), ACME) as attacker:
        for forged in (UMBRELLA, OPERATOR, "harebell_ticker"):
            channel = await attacker.connection.channel()
            target = await channel.get_exchange(attacker.exchange, ensure=False)
            with pytest.raises(ChannelPreconditionFailed):
                await target.publish(attacker.message({}, user_id=forged), f"{ACME}.schedule.put")
    queues = (INTAKE.name, QUERY.name, DLQ.name, f"{INTAKE.name}.{UMBRELLA}", DEAD_LETTERS.name)
    for queue in queues:
        async with Attacker.open(production.url(ACME), ACME) as attacker:
            with pytest.raises(ChannelAccessRefused):
                await attacker.by_dead_letter("", queue, attacker.message({}))


@pytest.mark.requirement("P1")
async def test_copy_header_does_not_change_the_tenant(victim: Victim) -> None:
    before = await victim.rows()
    async with Attacker.open(victim.production.url(ACME), ACME) as attacker:
        copies = {"CC": [f"{UMBRELLA}.schedule.cancel"]}
        message = attacker.message({"key": "secret"}, headers=copies)
        try:
            await attacker.publish(attacker.exchange, f"{ACME}.schedule.cancel", message)
        except ChannelAccessRefused:
            return  # newer releases check the keys of the header too
        answer = await attacker.answer()
        assert error_codes([answer]) == ["not_found"]

    assert set(before) <= set(await victim.rows())


@pytest.mark.requirement("P1")
async def test_event_that_becomes_a_command_starts_no_loop(production: Production) -> None:
    before = await refusals(production, "foreign_route")
    async with Attacker.open(production.url(ACME), ACME) as attacker:
        commands = await attacker.channel.get_exchange(attacker.exchange, ensure=False)
        await commands.bind(EVENTS, f"{ACME}.schedule.rejected")
        try:
            await attacker.publish(attacker.exchange, f"{ACME}.schedule.put", attacker.message({}))
            rejected = await attacker.answer()

            async def is_refused() -> bool:
                return await refusals(production, "foreign_route") > before

            await until(is_refused, what="the refusal of the event")
            for _ in range(3):  # each answer follows all earlier messages of the queue
                await attacker.publish(
                    attacker.exchange, f"{ACME}.schedule.get", attacker.message({})
                )
                await attacker.answer()
        finally:
            await commands.unbind(EVENTS, f"{ACME}.schedule.rejected")

    assert rejected["ok"] is False
    # The event of the put, and at most those of the three other rejected messages.
    assert await refusals(production, "foreign_route") - before <= 4


@pytest.mark.requirement("P2")
async def test_operator_gives_an_order_and_changes_a_schedule_of_a_tenant(victim: Victim) -> None:
    url = victim.production.url(OPERATOR)
    async with Client.connect(url, tenant=UMBRELLA) as operator:
        opened = await operator.open_breaker(DOWNSTREAM, note="maintenance")
        reset = await operator.reset_breaker(DOWNSTREAM)
        paused = await operator.pause(key="secret")
        resumed = await operator.resume(key="secret")

    assert (opened.status, reset.status) == ("forced_open", "automatic")
    assert (paused.status, resumed.status) == ("paused", "resumed")


# A queue that refuses every message, an unknown queue, and a malformed direct reply-to.
REPLY_QUEUES: Final = (f"{ACME}.full", f"{ACME}.unknown", "amq.rabbitmq.reply-to.g1h2AA==")
UNANSWERED: Final[tuple[tuple[str, dict[str, Any], int], ...]] = (
    ("schedule.put", {}, 1),
    ("dlq.list", {}, 20),
    ("schedule.list", {}, 20),
    ("run.list", {"key": "unknown"}, 20),
    ("schedule.pause", {"key": "unknown"}, 1_500),
)


@pytest.mark.requirement("P6")
@pytest.mark.parametrize("reply_to", REPLY_QUEUES)
async def test_replies_that_the_broker_refuses_delay_no_answer_to_another_tenant(
    production: Production, reply_to: str
) -> None:
    async with (
        Attacker.open(production.url(ACME), ACME) as attacker,
        production.client(UMBRELLA, timeout=MAX_SLOW_ANSWER) as umbrella,
    ):
        await attacker.channel.declare_queue(
            f"{ACME}.full",
            exclusive=True,
            arguments={"x-max-length": 0, "x-overflow": "reject-publish"},
        )
        exchange = await attacker.channel.get_exchange(attacker.exchange, ensure=False)
        for verb, body, number in UNANSWERED:
            messages = [attacker.message(body, reply_to=reply_to) for _ in range(number)]
            await asyncio.gather(
                *(exchange.publish(message, f"{ACME}.{verb}") for message in messages)
            )
            key = f"{reply_to} {verb}"
            await umbrella.put(
                {"key": key, "when": {"at": FAR}, "target": {"http": {"url": CLOSED}}}
            )
            await umbrella.pause(key=key)
            assert (await umbrella.schedule(key=key)).state == "paused"
            await _dead_letters(umbrella)
            await umbrella.cancel(key=key)
        own = attacker.message({"key": "unknown"})
        await exchange.publish(own, f"{ACME}.schedule.get")

        assert error_codes([await attacker.answer()]) == ["not_found"]


@pytest.mark.requirement("P4")
@pytest.mark.parametrize("route", ["publish", "by_binding", "by_alternate"])
async def test_message_that_its_queue_dead_letters_never_becomes_a_dead_run(
    route: str, victim: Victim
) -> None:
    """Forge a dead run of the victim, which expires in the intake queue of the attacker."""
    production = victim.production
    story = await victim.ledger.fetchval(
        "SELECT payload FROM dead_letters WHERE tenant = $1 AND kind = 'run'", UMBRELLA
    )
    forged = [orjson.loads(story) | {"key": f"forged-{number}"} for number in range(500)]
    before = await victim.rows()
    async with production.client(ACME) as acme:
        # A message expires at the head of its queue, and earlier tests may have left others there.
        when = {"at": "2049-01-01T00:00:00Z"}
        target = {"task": {"name": "harebell.echo"}}
        await acme.put({"key": f"before-{route}", "when": when, "target": target})
    production.stack.stop("intake-1")
    try:
        async with Attacker.open(production.url(ACME), ACME) as attacker:
            message = attacker.message(
                forged,
                type="harebell.run.dead.v1",
                expiration=0.001,
                reply_to=None,
                message_id=route,
            )
            await getattr(attacker, route)(attacker.exchange, f"{UMBRELLA}.run.dead", message)
            async with production.client(ACME) as acme:

                async def dead() -> list[Any]:
                    found = await _dead_letters(acme)
                    details = [await acme.dead_letter(each.id) for each in found]
                    return [each for each in details if each.payload["message_id"] == route]

                found = await until(dead, what="the dead message")
    finally:
        production.start(ServiceKind.INTAKE)

    assert {each.kind for each in found} == {"message"}
    assert set(before) <= set(await victim.rows())
    assert [each.id async for each in victim.harebell.dead_letters()] == [
        UUID(victim.dead_letter_id)
    ]
