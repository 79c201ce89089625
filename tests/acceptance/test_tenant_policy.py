"""The tenant policies in production: early answers, running executors, and bad documents."""

import json
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.acceptance.production import Production
from tests.acceptance.recording_target import Target
from tests.acceptance.scrape import Scrape
from tests.acceptance.stack import Tenant
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.client import Client, CommandRejected
from harebell.dev.plan import ServiceKind

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.broker_version]

ACME = "acme"
RELOAD_WITHIN = 5.0  # seconds
LATER = {"every": "30d", "start": "2150-01-01T00:00:00Z"}  # only a trigger makes a run
OPEN: dict[str, Any] = {"exchanges": ["orders"]}  # the policy of each tenant at the start


@dataclass(frozen=True, kw_only=True)
class Case:
    """A tenant, the policy that forbids its definition, and the field of the refusal."""

    tenant: str
    policy: dict[str, Any]
    field: str
    rule: str


CASES = [
    Case(tenant="one", policy={}, field="target.amqp.exchange", rule="exchanges"),
    Case(tenant="two", policy={"tasks": ["two.*"]}, field="target.task.name", rule="tasks"),
    Case(tenant="three", policy={"hosts": ["api.example"]}, field="target.http.url", rule="hosts"),
    Case(
        tenant="four",
        policy={"networks": ["10.0.0.0/8"]},
        field="target.http.url",
        rule="networks",
    ),
    Case(tenant="five", policy={"networks": []}, field="target.http.url", rule="ports"),
    Case(tenant="six", policy={"priority_max": 4}, field="priority", rule="priority_max"),
    Case(tenant="seven", policy={"pools": ["gpu"]}, field="pool", rule="pools"),
]


@dataclass(frozen=True)
class Installation:
    """Services that read the document in `file`, which all tests of this module change."""

    production: Production
    file: Path

    def write(self, **tenants: dict[str, Any]) -> None:
        document = {"tenants": {each.tenant: OPEN for each in CASES} | tenants}
        part = self.file.with_suffix(".new")
        part.write_text(json.dumps(document))
        part.rename(self.file)

    @asynccontextmanager
    async def as_operator(self, tenant: str) -> AsyncIterator[Tenant]:
        """Yield a tenant whose commands an operator gives, and its ledger."""
        stack = self.production.stack
        url = self.production.url("harebell_operator")
        async with stack.tenant(tenant) as read, Client.connect(url, tenant=tenant) as client:
            yield Tenant(name=tenant, stack=stack, harebell=client, ledger=read.ledger)

    async def until_reloaded(self, kind: ServiceKind, loads: int) -> None:
        """Wait until a service has loaded its document that often."""

        async def has_loaded() -> bool:
            return self.loads(kind) >= loads

        await until(has_loaded, within=RELOAD_WITHIN, what=f"a reload of {kind}")

    def loads(self, kind: ServiceKind) -> int:
        return self.production.stack.log_of(f"{kind}-1").count("tenant policies loaded")

    def readiness(self, kind: ServiceKind) -> tuple[int, str]:
        port = self.production.stack.services.plan(kind, 1).port
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as response:
            return response.status, response.read().decode()


@pytest.fixture(scope="module")
def installation(
    servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    root = tmp_path_factory.mktemp("policy")
    with Production.open(servers, root, tenants=(ACME,)) as production:
        installation = Installation(production, root / "tenants.yaml")
        installation.write()
        production.start(tenants_file=installation.file)
        yield installation


def definition(case: Case, target: Target) -> dict[str, Any]:
    """Return the target of a case, which the policy permits at the start."""
    name = {"five": "localhost"}.get(case.tenant, "127.0.0.1")
    called = target.http(f"policy-{case.tenant}")
    called["http"]["url"] = called["http"]["url"].replace("127.0.0.1", name)
    targets = {
        "one": {"amqp": {"exchange": "orders"}},
        "two": {"task": {"name": "harebell.echo"}},
    }
    return targets.get(case.tenant, called)


async def refusal(tenant: Tenant, target: dict[str, Any], **more: Any) -> CommandRejected:
    with pytest.raises(CommandRejected) as caught:
        await tenant.put("refused", LATER, target, **more)
    return caught.value


@pytest.mark.requirement("P11", "P3")
@pytest.mark.long
async def test_each_rule_applies_at_intake_and_at_the_executor_after_a_change(
    installation: Installation, target: Target
) -> None:
    for case in CASES:
        async with installation.as_operator(case.tenant) as tenant:
            await tenant.put("kept", LATER, definition(case, target))
    kinds = (ServiceKind.INTAKE, ServiceKind.EXECUTOR)
    loads = {kind: installation.loads(kind) for kind in kinds}

    installation.write(**{case.tenant: case.policy for case in CASES})
    for kind in kinds:
        await installation.until_reloaded(kind, loads[kind] + 1)

    for case in CASES:
        async with installation.as_operator(case.tenant) as tenant:
            early = await refusal(tenant, definition(case, target))
            response = await tenant.harebell.trigger(key="kept")
            await tenant.until_runs(1, "dead")
            (attempt,) = await tenant.attempts(response.run_id or "")
        assert (early.code, early.field) == ("not_allowed", case.field)
        found = (attempt["error_code"], attempt["error"].partition(": ")[0])
        expected = "target.http.url" if case.rule == "ports" else case.field
        assert found == ("not_allowed", expected)
        assert target.calls(f"policy-{case.tenant}") == []
    scrape = await Scrape.collect_one(installation.production.stack, ServiceKind.EXECUTOR, 1)
    counted = {rule for _, rule in scrape.by("harebell_policy_refusals_total", "code", "rule")}
    assert counted >= {case.rule for case in CASES}


@pytest.mark.requirement("P11")
async def test_permitted_schedule_of_the_same_tenant_still_runs(
    installation: Installation, target: Target
) -> None:
    production = installation.production
    async with (
        production.stack.tenant(ACME) as read,
        production.client(ACME) as client,
    ):
        acme = Tenant(name=ACME, stack=production.stack, harebell=client, ledger=read.ledger)
        loads = installation.loads(ServiceKind.INTAKE)
        installation.write(**{ACME: {"hosts": ["127.0.0.1"], "pools": ["default"]}})
        await installation.until_reloaded(ServiceKind.INTAKE, loads + 1)
        early = await refusal(acme, {"http": {"url": "https://evil.example/"}})
        await acme.put("permitted", {"now": True}, target.http("policy-permitted"))
        await acme.until_runs(1, "succeeded")

    assert (early.code, early.field) == ("not_allowed", "target.http.url")
    assert len(target.calls("policy-permitted")) == 1


@pytest.mark.long
@pytest.mark.requirement("P11")
async def test_bad_document_stops_a_start_and_never_a_running_service(
    installation: Installation,
) -> None:
    stack = installation.production.stack
    good = installation.file.read_text()
    installation.file.write_text("tenants:\n  acme:\n    host: [x]\n")
    try:

        async def is_noticed() -> bool:
            warnings = [installation.readiness(kind) for kind in ServiceKind]
            return all(
                status == 200 and "[!] tenant policies:" in text and "tenants.acme.host" in text
                for status, text in warnings
            )

        await until(is_noticed, within=RELOAD_WITHIN, what="the warning")
        scrape = await Scrape.collect_one(stack, ServiceKind.EXECUTOR, 1)
        stack.start_one(
            ServiceKind.EXECUTOR,
            2,
            ready=False,
            HAREBELL_AMQP_URL=installation.production.url("harebell_executor"),
            HAREBELL_TOPOLOGY_MODE="check",
            HAREBELL_TENANTS_FILE=str(installation.file),
        )

        async def has_ended() -> bool:
            process = stack.services.process("executor-2")
            return process is None or not process.is_running

        await until(has_ended, what="the end of the second executor")
        async with installation.as_operator("three") as tenant:
            before = len(await tenant.runs("succeeded"))
            await tenant.put("still", {"now": True}, {"task": {"name": "absent"}})
            await tenant.until_runs(before + 1)
    finally:
        installation.file.write_text(good)

    async def is_repaired() -> bool:
        return all("[!]" not in installation.readiness(kind)[1] for kind in ServiceKind)

    await until(is_repaired, within=RELOAD_WITHIN, what="the end of the warning")
    assert scrape.total("harebell_tenant_policies_valid") == 0
    failure = json.loads(stack.log_of("executor-2").splitlines()[-1])
    assert failure["event"] == "service failed"
    assert "line 3, tenants.acme.host: " in failure["reason"]
