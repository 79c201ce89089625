"""Harebell publishes for a tenant only to exchanges that the tenant itself may use."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractQueue
from tests.acceptance.production import Production
from tests.acceptance.stack import Tenant, run_id
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.client import CommandRejected
from harebell.dev.plan import ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.broker_version]

ACME, UMBRELLA = "acme", "umbrella"
FOREIGN = ("umbrella.orders", "billing")  # of another tenant, and of another application
OWN = "acme.orders"
CHANGE_TARGET = """
    UPDATE schedule_versions
    SET definition = jsonb_set(definition::jsonb, '{target,amqp,exchange}', to_jsonb($2::text)),
        run_spec = jsonb_set(run_spec::jsonb, '{target,amqp,exchange}', to_jsonb($2::text))
    WHERE schedule_id = $1
"""
LATER = {"every": "30d", "start": "2150-01-01T00:00:00Z"}  # only a trigger makes a run


@pytest.fixture(scope="module")
def production(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    root = tmp_path_factory.mktemp("deputy-targets")
    with Production.open(servers, root, tenants=(ACME, UMBRELLA)) as production:
        production.start()
        yield production


@asynccontextmanager
async def opened(production: Production) -> AsyncIterator[tuple[Tenant, dict[str, AbstractQueue]]]:
    """Yield the tenant with its own login, and a queue behind each exchange."""
    stack = production.stack
    queues: dict[str, AbstractQueue] = {}
    async with (
        await aio_pika.connect(stack.amqp_url) as connection,
        stack.tenant(ACME) as read,
        production.client(ACME) as client,
    ):
        channel = await connection.channel()
        for name in (*FOREIGN, OWN):
            exchange = await channel.declare_exchange(name, aio_pika.ExchangeType.FANOUT)
            queues[name] = await channel.declare_queue(f"{name}.inbox")
            await queues[name].bind(exchange)
        yield Tenant(name=ACME, stack=stack, harebell=client, ledger=read.ledger), queues


def order(exchange: str) -> dict[str, Any]:
    return {"amqp": {"exchange": exchange, "routing_key": "new", "json": {"n": 1}}}


async def received(queue: AbstractQueue) -> Any:
    message = await queue.get(no_ack=True, fail=False)
    return None if message is None else json.loads(message.body)


@pytest.mark.requirement("P3")
async def test_foreign_exchange_is_refused_at_intake(production: Production) -> None:
    async with opened(production) as (acme, queues):
        for exchange in FOREIGN:
            with pytest.raises(CommandRejected) as refused:
                await acme.put("foreign", {"now": True}, order(exchange))
            assert (refused.value.code, refused.value.field) == (
                "not_allowed",
                "target.amqp.exchange",
            )
        await acme.put("own", {"now": True}, order(OWN))

        assert await until(lambda: received(queues[OWN])) == {"n": 1}
        assert [await received(queues[name]) for name in FOREIGN] == [None, None]


@pytest.mark.requirement("P3")
async def test_schedule_of_an_older_release_publishes_to_no_foreign_exchange(
    production: Production,
) -> None:
    async with opened(production) as (acme, queues):
        for exchange in FOREIGN:
            id_ = await acme.put(f"old-{exchange}", LATER, order(OWN))
            await acme.ledger.execute(CHANGE_TARGET, id_, exchange)
        production.stack.stop("ticker-1")  # its cache contains the targets of the puts
        production.start(ServiceKind.TICKER)
        for exchange in FOREIGN:
            await acme.harebell.trigger(key=f"old-{exchange}")

        for run in await acme.until_runs(len(FOREIGN), "dead"):
            (attempt,) = await acme.attempts(run_id(str(run["schedule_id"]), run["scheduled_for"]))
            assert attempt["error_code"] == "not_allowed"
            assert attempt["error"].startswith("target.amqp.exchange: ")
        await acme.put("legitimate", LATER, order(OWN))
        await acme.harebell.trigger(key="legitimate")

        assert await until(lambda: received(queues[OWN])) == {"n": 1}
        assert [await received(queues[name]) for name in FOREIGN] == [None, None]
