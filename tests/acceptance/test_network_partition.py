"""A running executor without a connection to the broker and to the database."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.acceptance.faults import SHORT_LEASES, Pool, count_of, holder_of, until_called
from tests.acceptance.recording_target import Call, Target
from tests.acceptance.stack import Tenant, now
from tests.chaos.links import BROKER, DATABASE, SERVERS, Links
from tests.rig.polling import WAIT_TIMEOUT, until
from tests.rig.servers import as_role

from harebell.dev.local_services import StartedService
from harebell.dev.plan import ServiceKind, name_of

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.chaos]

RUNS = 10
CALL_DURATION = 3.0  # seconds, shorter than the lease
LEASE_DURATION = 4.0  # seconds, of SHORT_LEASES
REASSIGN_TIMEOUT = LEASE_DURATION + 10.0  # seconds from the cut to the last second attempt
CUT_OFF, OTHER = 1, 2
CUTS: dict[str, dict[str, Any]] = {
    "reset": {"cut": True},
    "silent": {"up": {"held": True}, "down": {"held": True}},
}


@dataclass(frozen=True)
class IsolatedExecutor:
    """An executor that connects to the servers through links, which a test can cut."""

    pool: Pool
    links: Links
    name: str = name_of(ServiceKind.EXECUTOR, CUT_OFF)

    async def start(self) -> StartedService:
        stack = self.pool.stack
        database_url = as_role(stack.database_url, ServiceKind.EXECUTOR)
        return await self.pool.start(
            CUT_OFF,
            **SHORT_LEASES,
            HAREBELL_AMQP_URL=self.links.through(stack.amqp_url, self.name, BROKER),
            HAREBELL_DATABASE_URL=self.links.through(database_url, self.name, DATABASE),
        )

    def set_links(self, **condition: Any) -> None:
        """Set the condition of both links, or restore them without an argument."""
        for server in SERVERS:
            self.links.set(self.name, server, **condition)


@pytest.fixture
def isolated(pool: Pool) -> Iterator[IsolatedExecutor]:
    urls = {BROKER: pool.stack.amqp_url, DATABASE: pool.stack.database_url}
    with Links.open([IsolatedExecutor.name], urls) as links:
        yield IsolatedExecutor(pool, links)


@pytest.mark.measures
@pytest.mark.requirement("S79", "S84")
@pytest.mark.parametrize("cut", CUTS)
async def test_another_executor_finishes_the_runs_of_an_isolated_executor(
    cut: str,
    faulty_tenant: Tenant,
    isolated: IsolatedExecutor,
    target: Target,
    record_property: Callable[[str, object], None],
) -> None:
    pool = isolated.pool
    cut_off = await isolated.start()
    hook = target.http("cut", sleep=CALL_DURATION)
    await faulty_tenant.harebell.put_many(
        [
            {"key": f"run-{number}", "when": {"now": True}, "target": hook, "pool": pool.name}
            for number in range(RUNS)
        ]
    )
    await until_called(target, "cut", RUNS)

    cut_at = now()
    isolated.set_links(**CUTS[cut])
    await pool.start(OTHER, **SHORT_LEASES)
    second = (await until_called(target, "cut", 2 * RUNS))[RUNS:]
    isolated.set_links()
    runs = await faulty_tenant.until_runs(RUNS, "succeeded")

    async def is_fenced() -> bool:
        return await count_of(cut_off, "harebell_fenced_completions_total") == RUNS

    await until(is_fenced, within=2 * WAIT_TIMEOUT, what="fenced completions")
    duration = (max(call.started_at for call in second) - cut_at).total_seconds()
    record_property("reassigned", f"{duration:.1f} s after the cut")
    assert duration < REASSIGN_TIMEOUT
    assert await faulty_tenant.runs() == runs, "A late completion changed a run."
    other = name_of(ServiceKind.EXECUTOR, OTHER)
    assert {(run["attempt"], holder_of(run)) for run in runs} == {(2, other)}
    assert_one_effect(target.calls("cut"))


def assert_one_effect(calls: list[Call]) -> None:
    """Assert that each run has one idempotency key and that the second call has a higher token."""
    first, second = calls[:RUNS], calls[RUNS:]
    assert Counter(call.idempotency_key for call in calls) == {call.run_id: 2 for call in first}
    tokens = {call.run_id: call.token for call in first}
    assert all(call.token > tokens[call.run_id] for call in second)
