"""The failing calls of one tenant never hold back the runs of another tenant of the same host."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from tests.acceptance.production import Production
from tests.acceptance.recording_target import Target
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.client import BreakerView, Client, CommandRejected
from harebell.contract.amqp_names import OPERATIONS_TENANT
from harebell.contract.downstream import downstream_of_json

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.broker_version]

ATTACKER, VICTIM = "acme", "umbrella"
SCHEDULES = 30
MAX_LATENESS = 2.0  # seconds
OPEN_DURATION = "60s"  # no breaker becomes half open during a test
ONE_ATTEMPT = {"max_attempts": 1}


@pytest.fixture(scope="module")
def production(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Production]:
    root = tmp_path_factory.mktemp("tenants")
    with Production.open(servers, root, tenants=(ATTACKER, VICTIM)) as production:
        production.start(
            HAREBELL_BREAKER_MODE="auto",
            HAREBELL_BREAKER_OPEN_DURATION=OPEN_DURATION,
            HAREBELL_OPERATORS=urlsplit(production.stack.amqp_url).username or "",
        )
        yield production


async def listed(production: Production) -> list[BreakerView]:
    """Return all breakers, as an operator sees them."""
    async with Client.connect(production.stack.amqp_url, tenant=OPERATIONS_TENANT) as operator:
        return await operator.breakers()


async def until_open(production: Production, tenant: str) -> None:
    async def is_open() -> bool:
        return tenant in {each.tenant for each in await listed(production)}

    await until(is_open, what=f"the open breaker of {tenant}")


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("P5")
async def test_timeouts_that_a_tenant_makes_hold_back_no_other_tenant(
    production: Production, target: Target
) -> None:
    slow = target.http("shared", sleep=0.5)
    async with production.tenant(ATTACKER) as acme, production.tenant(VICTIM) as umbrella:
        for number in range(SCHEDULES):
            await acme.put(f"short-{number}", {"now": True}, slow, timeout="1ms", retry=ONE_ATTEMPT)
        await acme.until_runs(SCHEDULES, "dead")

        await umbrella.put("victim", {"now": True}, target.http("victim"))
        await umbrella.until_runs(1, "succeeded")

        breakers = await listed(production)

    (call,) = target.calls("victim")
    assert call.late < MAX_LATENESS
    assert breakers == []


@pytest.mark.measures
@pytest.mark.requirement("P5")
async def test_open_breaker_holds_only_the_runs_of_its_tenant_and_only_it_sees_the_breaker(
    production: Production, target: Target
) -> None:
    broken = target.http("till", broken="the-till")
    name = downstream_of_json(broken)
    async with production.tenant(ATTACKER) as acme, production.tenant(VICTIM) as umbrella:
        before = len(await umbrella.runs("succeeded"))
        for number in range(SCHEDULES):
            await acme.put(f"broken-{number}", {"now": True}, broken, retry=ONE_ATTEMPT)
        await until_open(production, ATTACKER)
        await acme.put("held", {"now": True}, target.http("held"))

        await umbrella.put("other", {"now": True}, target.http("other"))
        await umbrella.until_runs(before + 1, "succeeded")
        own = await acme.harebell.breakers(own=True)
        foreign = await umbrella.harebell.breakers(own=True)
        with pytest.raises(CommandRejected):
            await umbrella.harebell.breakers()

    (call,) = target.calls("other")
    assert call.late < MAX_LATENESS
    assert [(each.tenant, each.downstream, each.state) for each in own] == [
        (ATTACKER, name, "open")
    ]
    assert foreign == []
    assert target.calls("held") == []
