"""One tenant's AMQP targets delay the targets of another tenant by a bounded time."""

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import aio_pika
import pytest
from tests.acceptance.cpu_priority import raised_priority
from tests.acceptance.floods import FLOOD, VICTIM, ended_runs
from tests.acceptance.production import Production
from tests.rig.servers import Servers

pytestmark = [
    pytest.mark.broker,
    pytest.mark.postgres,
    pytest.mark.long,
    pytest.mark.measures,
    pytest.mark.broker_version,
]

QUEUES = 200  # that receive each message of the flood
SCHEDULES = 56  # each every second
RUNS = 10  # of the victim
MAX_LATENESS = 2.0  # seconds from the due time of a run to the confirm of its message
MAX_SLOW_LATENESS = 5.0  # seconds, if the priority of the processes cannot be raised
SETTLING = 5.0  # seconds until the flood has its full rate
TIMEOUT = 60.0  # seconds
# Quotas would refuse the flood, which then would be no flood.
POLICIES = f"""
defaults: {{quotas: {{schedules: null, puts_per_second: null}}}}
tenants: {{{FLOOD}: {{declares: true}}, {VICTIM}: {{declares: true}}}}
"""


@pytest.fixture(scope="module")
def longest(servers: Servers) -> Iterator[float]:
    """Yield the longest permitted lateness of the victim [s]."""
    with raised_priority(servers) as is_raised:
        yield MAX_LATENESS if is_raised else MAX_SLOW_LATENESS


@pytest.fixture(scope="module")
def production(
    servers: Servers, longest: float, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Production]:
    del longest  # the services start with the priority of this process
    root = tmp_path_factory.mktemp("tenant-targets")
    policies = root / "tenants.yml"
    policies.write_text(POLICIES)
    with Production.open(servers, root, tenants=(FLOOD, VICTIM), declares=True) as production:
        production.start(tenants_file=policies)
        yield production


async def declare(url: str, tenant: str, queues: int) -> None:
    """Declare a fanout exchange of the tenant, and queues with one message each."""
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(f"{tenant}.fan", aio_pika.ExchangeType.FANOUT)
        for number in range(queues):
            queue = await channel.declare_queue(
                f"{tenant}.q{number}", durable=True, arguments={"x-max-length": 1}
            )
            await queue.bind(exchange)


def target(tenant: str, filling: int) -> dict[str, Any]:
    return {"amqp": {"exchange": f"{tenant}.fan", "routing_key": "k", "json": {"x": "x" * filling}}}


@pytest.mark.requirement("P6")
async def test_large_fanouts_of_a_tenant_delay_no_message_of_another_tenant(
    production: Production, longest: float, record_property: Any
) -> None:
    await declare(production.url(FLOOD), FLOOD, QUEUES)
    await declare(production.url(VICTIM), VICTIM, 1)
    async with production.client(FLOOD, timeout=TIMEOUT) as flooder:
        for number in range(SCHEDULES):
            flood = {"key": f"fan-{number}", "when": {"every": "1s"}}
            await flooder.put(flood | {"target": target(FLOOD, 60_000)})
    await asyncio.sleep(SETTLING)

    ids = []
    async with (
        production.client(VICTIM, timeout=TIMEOUT) as victim,
        production.stack.tenant(VICTIM) as rows,
    ):
        for _ in range(RUNS):
            now = {"key": str(uuid4()), "when": {"now": True}, "target": target(VICTIM, 10)}
            ids.append((await victim.put(now)).id)
            await asyncio.sleep(0.5)
        runs = await ended_runs(rows, ids)
        sent = await rows.ledger.fetchval(
            "SELECT count(*) FROM runs WHERE tenant = $1 AND state = 'succeeded'", FLOOD
        )
    latest = max(run["finished_at"] - run["due_at"] for run in runs).total_seconds()
    record_property("lateness", f"longest {latest:.3f} s, {sent} messages of the flood")

    assert sent > SCHEDULES, "the flood must have messages during the measurement"
    assert latest < longest
