"""Quotas of the tenant policies: refusals with `retry_after`, and tenants without such quotas."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.acceptance.production import Production
from tests.acceptance.stack import time_in
from tests.rig.servers import Servers

from harebell.client import Client, CommandRejected, TenantUsageView
from harebell.dev.plan import ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.broker_version]

ACME, OTHER, OPERATOR = "acme", "umbrella", "harebell_operator"
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
        production.client(ACME, timeout=60) as acme,
        production.client(OTHER, timeout=60) as other,
    ):
        first = await acme.put_many(schedules("few", 8))
        await asyncio.sleep(1)  # the rate of puts
        with pytest.raises(CommandRejected) as refused:
            await acme.put({"key": "one-more", "when": WHEN, "target": TARGET})
        again = await acme.put({"key": "few-0", "when": WHEN, "target": TARGET})
        await acme.cancel(key="few-0")
        await asyncio.sleep(2)
        replaced = await acme.put({"key": "one-more", "when": WHEN, "target": TARGET})
        revivals = [
            acme.put({"key": "few-0", "when": WHEN, "target": TARGET, "revive": True}),
            acme.patch({"priority": 3}, key="few-0", revive=True),
        ]
        for revival in revivals:
            with pytest.raises(CommandRejected) as not_revived:
                await revival
            assert not_revived.value.code == "quota_exceeded"
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
    async with production.client(ACME, timeout=60) as acme:
        await asyncio.sleep(1.1)
        responses = await acme.put_many(
            [{**each, "key": "few-1"} for each in schedules("fast", 40)]
        )
        refused = refusals(responses)
        await asyncio.sleep(1.1)
        later = await acme.put({"key": "few-1", "when": WHEN, "target": TARGET})

    async with production.client(ACME, timeout=60) as acme:
        triggers = [acme.trigger(key="few-1", request_id=f"trigger-{n}") for n in range(200)]
        started = time.monotonic()
        results = await asyncio.gather(*triggers, return_exceptions=True)
        seconds = time.monotonic() - started

    rejected = [each for each in results if isinstance(each, CommandRejected)]
    assert {each.code for each in rejected} == {"quota_exceeded"}
    assert len(results) - len(rejected) <= 20 * (1 + seconds)
    assert 15 <= len(refused) <= 25
    assert {rule for rule, _ in refused} == {"puts_per_second"}
    assert all(retry_after for _, retry_after in refused)
    assert later.ok


@pytest.mark.requirement("P11")
async def test_backfills_beyond_the_quota_create_no_run(production: Production) -> None:
    async with (
        production.stack.tenant(ACME) as rows,
        production.client(ACME, timeout=60) as acme,
    ):
        await asyncio.sleep(1.1)  # the rate of puts
        await acme.put({"key": "few-2", "when": WHEN, "target": TARGET})
        since, until = time_in(-5 * 3600), time_in(-1)
        with pytest.raises(CommandRejected) as refused:
            await acme.backfill(key="few-2", from_time=since, to=until, max_runs=11)
        before = len(await rows.runs())
        await acme.backfill(key="few-2", from_time=since, to=until, max_runs=10)
        after = len(await rows.runs())

    assert refused.value.code == "quota_exceeded"
    assert after > before


@pytest.mark.requirement("P11")
async def test_usage_shows_a_tenant_its_own_quotas_and_operators_every_tenant(
    production: Production,
) -> None:
    foreign = {"key": "usage", "when": WHEN, "target": TARGET, "pool": "foreign"}
    async with (
        production.client(ACME, timeout=60) as acme,
        production.client(OTHER, timeout=60) as other,
        Client.connect(production.url(OPERATOR), timeout=60) as operator,
    ):
        await asyncio.sleep(1.1)  # the rate of puts
        await acme.put_many(schedules("further", 40))
        with pytest.raises(CommandRejected):
            await other.put(foreign)
        everyone = await usage_when_refused(operator)
        (shown,) = [each async for each in acme.tenant_usage()]
        with pytest.raises(CommandRejected):
            _ = [each async for each in acme.tenant_usage(all_tenants=True)]

    quotas = {each.quota: each for each in shown.quotas}
    assert shown.tenant == ACME
    assert (quotas["schedules"].limit, quotas["puts_per_second"].limit) == (5, 20)
    assert 0 < (quotas["schedules"].used or 0) <= 5
    assert 0 < (quotas["puts_per_second"].used or 0) <= 20
    assert quotas["puts_per_second"].refused >= 15
    assert quotas["schedules"].refused >= 15
    assert (quotas["queued_bytes"].limit, quotas["queued_bytes"].used) == (64 * 2**20, None)
    assert everyone.keys() >= {ACME, OTHER}
    assert [(each.code, each.rule) for each in everyone[OTHER].refusals] == [
        ("not_allowed", "pools")
    ]


async def usage_when_refused(operator: Client) -> dict[str, TenantUsageView]:
    """Return the use of all tenants when intake and the ticker have stored their refusals."""
    for _ in range(100):
        found = {each.tenant: each async for each in operator.tenant_usage(all_tenants=True)}
        quotas = {each.quota: each.refused for each in found[ACME].quotas}
        if quotas["schedules"] >= 15 and OTHER in found and found[OTHER].refusals:
            return found
        await asyncio.sleep(0.2)
    message = "The use shows no refusals."
    raise AssertionError(message)
