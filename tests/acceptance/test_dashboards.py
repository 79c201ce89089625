"""Every panel of the dashboards shows data for a stack with successes and failures."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError

import pytest
from tests.acceptance.prometheus import Prometheus
from tests.acceptance.stack import Stack, until
from tests.rig.servers import Servers
from tests.tools.dashboards.grafana import DASHBOARDS
from tests.tools.dashboards.panel import RATE_INTERVAL

from harebell.contract.errors import CommandRejected
from harebell.dev.plan import ServiceCounts

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

COUNTS = ServiceCounts()
ECHO = {"task": {"name": "harebell.echo"}}
REFUSED = "http://127.0.0.1:1/"  # no server listens on this port
QUERIES = {
    f"{dashboard.name}: {panel.title}: {query.legend}": query.expr
    for dashboard in DASHBOARDS
    for panel in dashboard.panels()
    for query in panel.queries
}


@pytest.fixture
def stack(servers: Servers, tmp_path: Path) -> Iterator[Stack]:
    policies = tmp_path / "tenants.yaml"
    policies.write_text("defaults: {pools: [default]}\n")
    with Stack.open(servers, tmp_path / "stack") as opened:
        opened.start(
            COUNTS,
            HAREBELL_BREAKER_MODE="auto",
            HAREBELL_ALERT_DEAD_LETTER_COUNT="1",
            HAREBELL_ALERT_WEBHOOK_URL=REFUSED,
            HAREBELL_TENANTS_FILE=str(policies),
        )
        yield opened


@pytest.fixture
def prometheus(stack: Stack, tmp_path: Path) -> Iterator[Prometheus]:
    ports: dict[str, list[int]] = defaultdict(list)
    for kind, number in COUNTS.members():
        ports[kind].append(stack.services.plan(kind, number).port)
    with Prometheus.open(tmp_path / "prometheus", ports) as opened:
        yield opened


@pytest.mark.requirement("S115")
async def test_every_query_of_the_dashboards_has_data(stack: Stack, prometheus: Prometheus) -> None:
    empty = dict(QUERIES)

    def drop_filled() -> bool:
        """Drop the queries that have data now, and return whether each query had data once."""
        for name, expression in list(empty.items()):
            if prometheus.query(expression.replace(RATE_INTERVAL, "20s")):
                del empty[name]
        return not empty

    async def is_complete() -> bool:
        await acme.harebell.trigger(key="works")  # a change, which has a latency
        with suppress(CommandRejected):  # the tenant policy does not permit the pool
            await acme.put("refused", {"every": "1s"}, ECHO, pool="vip")
        with suppress(URLError):  # Prometheus does not listen yet
            return await asyncio.to_thread(drop_filled)
        return False

    async with stack.tenant("acme") as acme:
        await acme.put("works", {"every": "1s"}, ECHO)
        failing = {"http": {"url": REFUSED}}
        await acme.put("fails", {"every": "1s"}, failing, retry={"max_attempts": 1})
        with suppress(AssertionError):  # the next assertion names the queries
            await until(is_complete, within=60, what="data for every query")

    assert empty == {}
