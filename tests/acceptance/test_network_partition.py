"""An executor that lives and works, but reaches neither broker nor database."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.acceptance.faults import SHORT_LEASES, Pool, count_of, holder_of, until_called
from tests.acceptance.recording_target import Call, Target
from tests.acceptance.stack import WAIT_TIMEOUT, Tenant, now, until
from tests.chaos.links import BROKER, DATABASE, SERVERS, Links
from tests.rig.servers import as_role

from harebell.dev.local_services import StartedService
from harebell.dev.plan import ServiceKind, name_of

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.chaos]

RUNS = 10
HELD = 3.0  # seconds that a call takes; the lease is four
LEASE = 4.0  # seconds: SHORT
REASSIGNED = LEASE + 10.0  # seconds from the cut to the last second attempt
CUT_OFF, OTHER = 1, 2
CUTS: dict[str, dict[str, Any]] = {
    "reset": {"cut": True},
    "silent": {"up": {"held": True}, "down": {"held": True}},
}


@dataclass(frozen=True)
class Lonely:
    """An executor of a pool that reaches its servers by way of links, until they are cut."""

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

    def set(self, **condition: Any) -> None:
        """Both links; nothing said: as they should be."""
        for server in SERVERS:
            self.links.set(self.name, server, **condition)


@pytest.fixture
def lonely(pool: Pool) -> Iterator[Lonely]:
    urls = {BROKER: pool.stack.amqp_url, DATABASE: pool.stack.database_url}
    with Links.open([Lonely.name], urls) as links:
        yield Lonely(pool, links)


@pytest.mark.requirement("S79", "S84")
@pytest.mark.parametrize("cut", CUTS)
async def test_runs_of_an_executor_that_is_cut_off_are_finished_by_another_with_one_effect(
    cut: str,
    faulty_tenant: Tenant,
    lonely: Lonely,
    target: Target,
    record_property: Callable[[str, object], None],
) -> None:
    pool = lonely.pool
    cut_off = await lonely.start()
    hook = target.http("cut", sleep=HELD)
    await faulty_tenant.harebell.put_many(
        [
            {"key": f"run-{number}", "when": {"now": True}, "target": hook, "pool": pool.name}
            for number in range(RUNS)
        ]
    )
    await until_called(target, "cut", RUNS)

    cut_at = now()
    lonely.set(**CUTS[cut])
    await pool.start(OTHER, **SHORT_LEASES)
    second = (await until_called(target, "cut", 2 * RUNS))[RUNS:]
    lonely.set()
    runs = await faulty_tenant.until_runs(RUNS, "succeeded")

    async def has_settled_in_vain() -> bool:
        return await count_of(cut_off, "harebell_fenced_completions_total") == RUNS

    await until(has_settled_in_vain, within=2 * WAIT_TIMEOUT, what="late settles")
    took = (max(call.started_at for call in second) - cut_at).total_seconds()
    record_property("reassigned", f"{took:.1f} s after the cut")
    assert took < REASSIGNED
    assert await faulty_tenant.runs() == runs, "a late settle counted"
    other = name_of(ServiceKind.EXECUTOR, OTHER)
    assert {(run["attempt"], holder_of(run)) for run in runs} == {(2, other)}
    assert_one_effect(target.calls("cut"))


def assert_one_effect(calls: list[Call]) -> None:
    """Of each run, where the key is honoured; and which of the two calls is the later is told."""
    first, second = calls[:RUNS], calls[RUNS:]
    assert Counter(call.idempotency_key for call in calls) == {call.run_id: 2 for call in first}
    tokens = {call.run_id: call.token for call in first}
    assert all(call.token > tokens[call.run_id] for call in second)
