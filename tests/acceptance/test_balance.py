"""Two tickers share the due schedules of all tenants."""

from collections.abc import Callable
from datetime import datetime, timedelta

import asyncpg
import pytest
from tests.acceptance.bulk import ScheduleCopier, Spread, one_shot
from tests.acceptance.faults import count_of
from tests.acceptance.stack import Stack, time_in
from tests.rig.polling import until

from harebell.dev.plan import ServiceCounts, ServiceKind, name_of

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.chaos]

CUSTOMERS = 4
SCHEDULES_PER_CUSTOMER = (
    25_000  # at distances of SPACING; the first of each customer is due at the same time
)
SPACING = timedelta(milliseconds=2)
FIRST_DUE = 600.0  # seconds
FAR_FUTURE = 300 * 86_400.0  # seconds
HORIZON = {"HAREBELL_HORIZON": "20m"}  # covers every schedule
MIN_SHARE = 0.25  # of all runs for each ticker, because they do not start at the same time
MIN_PASS = 100  # runs in a pass that must include runs of every customer
STAGING_TIMEOUT = 300.0  # seconds

_STAGED_RUNS = "SELECT count(*) FROM runs"
_PASSES = """
SELECT count(*) AS runs, count(DISTINCT tenant) AS customers FROM runs GROUP BY xmin::text
"""


@pytest.mark.requirement("S96", "S128")
async def test_two_tickers_share_the_due_schedules_of_all_tenants(
    own_stack: Stack, record_property: Callable[[str, object], None]
) -> None:
    own_stack.start(ServiceCounts(), **HORIZON)
    customers = [f"customer-{number}" for number in range(CUSTOMERS)]
    for customer in customers:
        await put_model(own_stack, customer)
    own_stack.stop(name_of(ServiceKind.TICKER, 1))
    ledger = await asyncpg.connect(own_stack.database_url)
    try:
        first = time_in(FIRST_DUE).replace(microsecond=0)
        for customer in customers:
            copier = ScheduleCopier(
                connection=ledger, tenant=customer, model="model", when=one_shot, paused=None
            )
            await load(copier, first)
        tickers = [
            own_stack.start_one(ServiceKind.TICKER, number, ready=False, **HORIZON)
            for number in (1, 2)
        ]

        async def all_staged() -> bool:
            return bool(await ledger.fetchval(_STAGED_RUNS) == CUSTOMERS * SCHEDULES_PER_CUSTOMER)

        await until(all_staged, within=STAGING_TIMEOUT, what="the staging of all")
        passes = await ledger.fetch(_PASSES)
    finally:
        await ledger.close()
    staged = [await count_of(each, "harebell_runs_staged_total") for each in tickers]

    record_property("staged", " and ".join(f"{count:,.0f}" for count in staged))
    assert sum(staged) == CUSTOMERS * SCHEDULES_PER_CUSTOMER
    assert min(staged) >= MIN_SHARE * CUSTOMERS * SCHEDULES_PER_CUSTOMER
    # each pass belongs to one ticker, so both tickers stage runs of every customer
    assert {row["customers"] for row in passes if row["runs"] >= MIN_PASS} == {CUSTOMERS}


async def put_model(stack: Stack, customer: str) -> None:
    async with stack.tenant(customer) as tenant:
        task = {"task": {"name": "harebell.echo"}}
        await tenant.put("model", {"at": time_in(FAR_FUTURE).isoformat()}, task)


async def load(copier: ScheduleCopier, first: datetime) -> None:
    accepted_at = await copier.accepted_at()
    soonest = first - accepted_at.replace(microsecond=0)
    await copier.create_copies(range(SCHEDULES_PER_CUSTOMER), Spread(soonest, SPACING, first=0))
