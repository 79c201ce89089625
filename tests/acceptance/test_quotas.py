"""Quotas of the tenant policies: refusals with `retry_after`, and tenants without such quotas."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.acceptance.production import Production
from tests.acceptance.stack import time_in
from tests.rig.servers import Servers

from harebell.client import Client, CommandRejected
from harebell.dev.plan import ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.broker_version]

ACME, OTHER = "acme", "umbrella"
POLICIES = """\
tenants:
  acme:
    quotas: {schedules: 5, puts_per_second: 20, backfill_runs: 10}
  umbrella: {}
"""
WHEN = {"cron": "0 * * * *"}
TARGET = {"task": {"name": "harebell.echo"}}


@pytest.fixture(scope="module")
def production(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    root = tmp_path_factory.mktemp("quotas")
    policies = root / "tenants.yml"
    policies.write_text(POLICIES)
    with Production.open(servers, root, tenants=(ACME, OTHER)) as production:
        production.start(
            ServiceKind.INTAKE, ServiceKind.TICKER, HAREBELL_TENANTS_FILE=str(policies)
        )
        yield production


def schedules(prefix: str, count: int) -> list[dict[str, Any]]:
    return [
        {"key": f"{prefix}-{number}", "when": WHEN, "target": TARGET} for number in range(count)
    ]


def refusals(responses: Any) -> list[tuple[str, float | None]]:
    return [(each.error.rule, each.error.retry_after) for each in responses if not each.ok]


@pytest.mark.requirement("P11")
async def test_tenant_creates_no_schedule_beyond_its_quota(production: Production) -> None:
    async with (
        Client.connect(production.url(ACME), tenant=ACME, timeout=60) as acme,
        Client.connect(production.url(OTHER), tenant=OTHER, timeout=60) as other,
    ):
        first = await acme.put_many(schedules("few", 8))
        await asyncio.sleep(1)  # the rate of puts
        with pytest.raises(CommandRejected) as refused:
            await acme.put({"key": "one-more", "when": WHEN, "target": TARGET})
        again = await acme.put({"key": "few-0", "when": WHEN, "target": TARGET})
        await acme.cancel(key="few-0")
        await asyncio.sleep(2)
        replaced = await acme.put({"key": "one-more", "when": WHEN, "target": TARGET})
        free = await other.put_many(schedules("many", 20))

    assert [each.ok for each in first] == [True] * 5 + [False] * 3
    assert {rule for rule, _ in refusals(first)} == {"schedules"}
    assert refused.value.code == "quota_exceeded"
    assert refused.value.retry_after
    assert again.status == "unchanged"
    assert replaced.status == "created"
    assert all(each.ok for each in free)


@pytest.mark.requirement("P11")
async def test_puts_beyond_the_rate_are_refused_and_later_puts_succeed(
    production: Production,
) -> None:
    async with Client.connect(production.url(ACME), tenant=ACME, timeout=60) as acme:
        await asyncio.sleep(1.1)
        responses = await acme.put_many(
            [{**each, "key": "few-1"} for each in schedules("fast", 40)]
        )
        refused = refusals(responses)
        await asyncio.sleep(1.1)
        later = await acme.put({"key": "few-1", "when": WHEN, "target": TARGET})

    assert 15 <= len(refused) <= 25
    assert {rule for rule, _ in refused} == {"puts_per_second"}
    assert all(seconds for _, seconds in refused)
    assert later.ok


@pytest.mark.requirement("P11")
async def test_backfills_beyond_the_quota_create_no_run(production: Production) -> None:
    async with (
        production.stack.tenant(ACME) as rows,
        Client.connect(production.url(ACME), tenant=ACME, timeout=60) as acme,
    ):
        since, until = time_in(-5 * 3600), time_in(-1)
        with pytest.raises(CommandRejected) as refused:
            await acme.backfill(key="few-2", from_time=since, to=until, max_runs=11)
        before = len(await rows.runs())
        await acme.backfill(key="few-2", from_time=since, to=until, max_runs=10)
        after = len(await rows.runs())

    assert refused.value.code == "quota_exceeded"
    assert after > before
