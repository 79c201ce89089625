"""The commands of docs/operations on a running stack, and the tests that run the other commands."""

import re
import sys
import urllib.request
from collections import defaultdict
from datetime import timedelta
from http.client import HTTPException
from pathlib import Path
from typing import Final

import asyncpg
import pytest
from tests.acceptance.stack import Stack, now
from tests.acceptance.stack_pool import StackPool
from tests.acceptance.test_audit_watch import ping_server
from tests.architecture.documents import page
from tests.rig.command_line import caller_environment
from tests.rig.servers import as_role
from tests.tools.page_commands import SHELL_LANGUAGES, Block, PageShell, blocks_of

from harebell.dev.plan import ServiceCounts
from harebell.dev.ports import choose_ports

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

ROOT: Final = Path(__file__).parents[2]
HERE: Final = "tests/acceptance/test_operations_pages.py"
TENANT: Final = "operations"
ECHO: Final = {"task": {"name": "harebell.echo"}}
INSTANT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")

# The file whose tests run the commands of a page.
RUN_BY: Final = {
    "audit.md": HERE,
    "backup.md": "tests/acceptance/test_backup.py",
    "compose.md": "tests/acceptance/test_compose.py",
    "dashboards.md": "tests/acceptance/test_dashboards.py",
    "failover.md": HERE,
    "forecast.md": HERE,
    "kubernetes.md": "tests/integration/chart/test_chart_page.py",
    "retention.md": "tests/integration/ticker/test_retention_page.py",
    "scaling.md": "tests/acceptance/test_dashboards.py",
    "systemd.md": "tests/integration/package/test_machine.py",
    "upgrades.md": HERE,
}


@pytest.fixture(scope="module")
def stack(stacks: StackPool) -> Stack:
    return stacks.take(ServiceCounts())


@pytest.fixture
def shell(stack: Stack, tmp_path: Path) -> PageShell:
    return PageShell(
        folder=tmp_path,
        variables={
            **caller_environment(),
            "HAREBELL_AMQP_URL": stack.amqp_url,
            "HAREBELL_DATABASE_URL": as_role(stack.database_url, "auditor"),
            "HAREBELL_TENANT": TENANT,
        },
        programs=[Path(sys.executable).parent],
    )


def blocks(name: str, *languages: str) -> dict[str, list[Block]]:
    """Return the blocks of a page by their section."""
    found: dict[str, list[Block]] = defaultdict(list)
    for block in blocks_of(page(name), *languages):
        found[block.section].append(block)
    return found


async def put_daily(stack: Stack) -> None:
    async with stack.tenant(TENANT) as tenant:
        await tenant.put("daily-sales", {"cron": "0 9 * * *"}, ECHO)


@pytest.mark.parametrize(("name", "file"), RUN_BY.items())
def test_commands_of_a_page_have_a_test_that_reads_the_page(name: str, file: str) -> None:
    assert list(blocks_of(page(name), *SHELL_LANGUAGES, "promql", "sql"))
    assert name in (ROOT / file).read_text(encoding="utf-8")


async def test_commands_of_the_audit_succeed(stack: Stack, shell: PageShell) -> None:
    sections = blocks("audit.md")
    assert sections.keys() == {"Audit from outside", "Continuous audit"}
    await put_daily(stack)
    (once,) = sections["Audit from outside"]
    first, last = INSTANT.findall(once.text)
    hour = now().replace(minute=0, second=0, microsecond=0)
    auditor = as_role(stack.database_url, "auditor")

    shell.run(
        once.replaced(
            {
                "postgresql://harebell_auditor:...@db.example/harebell": auditor,
                first: f"{hour - timedelta(hours=2):%Y-%m-%dT%H:%M:%SZ}",
                last: f"{hour - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}",
            }
        )
    )

    pinging, exporting = sections["Continuous audit"]
    with ping_server() as (url, received):
        command = pinging.replaced({"https://hc.example/ping/6f0a7c0e": url})
        shell.run_until(command, lambda: bool(received))
    port = choose_ports(["audit"], seed=str(shell.folder), remembered={})["audit"]
    file = shell.folder / "harebell.prom"
    commands = exporting.replaced(
        {"9101": str(port), "/var/lib/node_exporter/harebell.prom": str(file)}
    )
    to_port, to_file = commands.splitlines()
    shell.run_until(to_port, lambda: "harebell_audit_success 1.0" in metrics_on(port))
    shell.run_until(to_file, file.exists)

    assert {path for path, _ in received} == {"/ping"}
    assert "harebell_audit_success 1.0" in file.read_text()


def metrics_on(port: int) -> str:
    """Return the metrics on this port, or an empty text while no server answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
            text: str = response.read().decode()
    except (OSError, HTTPException):
        return ""
    return text


async def test_commands_of_the_forecast_succeed(stack: Stack, shell: PageShell) -> None:
    sections = blocks("forecast.md")
    await put_daily(stack)

    outputs = {
        section: "".join(shell.run(each.text) for each in found)
        for section, found in sections.items()
    }

    assert "default" in outputs["Show the next day"]
    assert '"hours"' in outputs["Write JSON or a page"]
    for file in ("forecast.html", "forecast.svg"):
        assert "<svg" in (shell.folder / file).read_text()


async def test_commands_of_failover_succeed(stack: Stack, shell: PageShell) -> None:
    """The rows 16a and 16b of the fault matrix promote standbys. The test runs the commands."""
    sections = blocks("failover.md")
    (audit,) = sections["Asynchronous standby"]
    _, defaults = sections["pgbouncer in transaction mode"]

    shell.run(audit.text)
    shell.run(defaults.text, variables={"HAREBELL_DATABASE_URL": stack.database_url})

    ticker = await asyncpg.connect(as_role(stack.database_url, "ticker"))
    try:
        timeout = await ticker.fetchval("SHOW statement_timeout")
    finally:
        await ticker.close()
    assert timeout != "0"


@pytest.mark.parametrize(
    ("section", "host"),
    [("Name every server", "db-1.example"), ("pgbouncer in transaction mode", "pooler.example")],
)
def test_url_of_the_page_on_failover_is_valid(section: str, host: str, shell: PageShell) -> None:
    assignment = blocks("failover.md")[section][0].text
    script = (
        f"{assignment} python -c 'import os;"
        "from harebell.runtime.database_url import read_database_url as read;"
        'print(read(os.environ["HAREBELL_DATABASE_URL"]))\''
    )

    assert host in shell.run(script)


async def test_queries_and_the_migration_of_the_page_on_upgrades_succeed(
    stack: Stack, shell: PageShell
) -> None:
    source = page("upgrades.md").read_text()
    (migration,) = re.findall(r"`HAREBELL_DATABASE_URL=<URL of its owner> (python [^`]+)`", source)
    queries = [each for found in blocks("upgrades.md", "sql").values() for each in found]
    async with stack.tenant(TENANT) as tenant:
        foreign = {"amqp": {"exchange": f"{TENANT}.own", "routing_key": "x", "json": {}}}
        await tenant.put("own-exchange", {"cron": "0 9 * * *"}, foreign)
        found = [await tenant.ledger.fetch(each.text) for each in queries]

    shell.run(migration, variables={"HAREBELL_DATABASE_URL": stack.database_url})

    assert [len(rows) for rows in found] == [0, 0]
