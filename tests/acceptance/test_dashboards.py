"""Every panel of the dashboards shows data for a stack with successes and failures.

`PICTURES=1 .venv/bin/python -m pytest tests/acceptance/test_dashboards.py` writes the page with the
tables again.
"""

import asyncio
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError

import pytest
from tests.acceptance.prometheus import Prometheus
from tests.acceptance.stack import Stack
from tests.acceptance.test_audit import audit_command, environment
from tests.architecture.documents import page as document
from tests.architecture.source_tree import ROOT
from tests.rig.command_line import caller_environment
from tests.rig.polling import until
from tests.rig.servers import Servers
from tests.tools.dashboards.panel import Query
from tests.tools.dashboards.tables import PAGE, Samples, expression, page, queries
from tests.tools.page_commands import PageShell, blocks_of

from harebell.contract.errors import CommandRejected
from harebell.dev.plan import ServiceCounts
from harebell.dev.ports import choose_ports

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

COUNTS = ServiceCounts()
ECHO = {"task": {"name": "harebell.echo"}}
EXAMPLE_URL = "http://127.0.0.1:9090"  # of the page
REFUSED = "http://127.0.0.1:1/"  # no server listens on this port


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
    ports["audit"] = [*choose_ports(["audit"], seed=str(tmp_path), remembered={}).values()]
    with (
        audit_from_outside(stack, *ports["audit"]),
        Prometheus.open(tmp_path / "prometheus", ports) as opened,
    ):
        yield opened


@contextmanager
def audit_from_outside(stack: Stack, port: int) -> Iterator[None]:
    """Repeat the audit each second, and show its findings on the port."""
    options = ["--all-tenants", "--watch", "--every", "1s", "--metrics-port", str(port)]
    audit = subprocess.Popen(  # noqa: S603  # the command of the page of the audit
        audit_command(*options), env=environment(stack), stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        audit.kill()
        audit.wait()


def needed_executors(prometheus: Prometheus) -> set[str]:
    """Return the pools in the result of the query on the page scaling.md."""
    (query,) = blocks_of(document("scaling.md"), "promql")
    return {sample["metric"]["pool"] for sample in prometheus.query(query.text)}


def printed_tables(prometheus: Prometheus) -> list[str]:
    """Return the titles of the tables that the command on the page dashboards.md prints."""
    blocks = list(blocks_of(document("dashboards.md")))
    (tables,) = [each for each in blocks if EXAMPLE_URL in each.text]
    shell = PageShell(folder=ROOT, variables=caller_environment())
    return titles(shell.run(tables.replaced({EXAMPLE_URL: prometheus.url})))


def page_titles() -> list[str]:
    return titles(page({}))


def titles(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("#")]


@pytest.mark.requirement("S115")
async def test_every_query_of_the_dashboards_has_data(stack: Stack, prometheus: Prometheus) -> None:
    found: dict[Query, Samples] = {}

    def is_filled() -> bool:
        """Keep the newest data of each query, and return whether each query had data once."""
        for query in queries():
            if samples := prometheus.query(expression(query)):
                found[query] = samples
        return found.keys() == set(queries())

    async def is_complete() -> bool:
        await acme.harebell.trigger(key="works")  # a change, which has a latency
        with suppress(CommandRejected):  # the tenant policy does not permit the pool
            await acme.put("refused", {"every": "1s"}, ECHO, pool="vip")
        with suppress(URLError):  # Prometheus does not listen yet
            return await asyncio.to_thread(is_filled)
        return False

    async with stack.tenant("acme") as acme:
        await acme.put("works", {"every": "1s"}, ECHO)
        failing = {"http": {"url": REFUSED}}
        await acme.put("fails", {"every": "1s"}, failing, retry={"max_attempts": 1})
        with suppress(AssertionError):  # the next assertion names the queries
            await until(is_complete, within=60, what="data for every query")

    assert [each.expr for each in queries() if each not in found] == []
    assert await asyncio.to_thread(needed_executors, prometheus) == {"default"}
    assert await asyncio.to_thread(printed_tables, prometheus) == page_titles()
    written = page(found)
    assert "No data." not in written
    if os.environ.get("PICTURES"):
        PAGE.write_text(written, encoding="utf-8")
