"""Two tickers on the same schedules, and the loss of one of them."""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.acceptance.faults import assert_each_once, count_of, put_spread, start
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, time_in
from tests.rig.polling import WAIT_TIMEOUT

from harebell.dev.plan import ServiceCounts, ServiceKind, name_of

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

TWO_TICKERS = ServiceCounts(tickers=2)
SHORT_HORIZON = {"HAREBELL_HORIZON": "5s"}
SMALL_PASSES = {"HAREBELL_STAGING_BATCH": "10"}  # so that both tickers have work each second
TICKERS = [name_of(ServiceKind.TICKER, number) for number in (1, 2)]

SCHEDULES = 100  # that are due each second
DURATION = 10  # seconds, and runs of each schedule
RUNS_STAGED = "harebell_runs_staged_total"

OLD, NEW = 100, 100  # schedules before and after the loss of a ticker
FIRST_DUE, SPREAD = 12.0, 4.0  # seconds

_STAGED_TOGETHER = """
SELECT bool_or(schedule_id = ANY($1::uuid[])) AND bool_or(schedule_id = ANY($2::uuid[])) AS both
FROM runs WHERE tenant = $3 GROUP BY staged_at
"""


@pytest.mark.requirement("S87", "ASK-7")
async def test_two_tickers_stage_each_run_of_the_same_schedules_once(
    own_stack: Stack, target: Target, record_property: Callable[[str, object], None]
) -> None:
    """Start the tickers after the schedules exist, because an idle ticker sleeps up to 15 s."""
    settings = SHORT_HORIZON | SMALL_PASSES
    await asyncio.to_thread(own_stack.start, ServiceCounts(tickers=0), **settings)
    ticker = await start(own_stack, ServiceKind.TICKER, 1, **SHORT_HORIZON)
    async with own_stack.tenant("two-tickers") as tenant:
        first = time_in(FIRST_DUE).replace(microsecond=0)
        when = {"every": "1s", "start": first.isoformat(), "times": DURATION}
        responses = await tenant.harebell.put_many(
            [
                {"key": f"each-{number}", "when": when, "target": target.http("each")}
                for number in range(SCHEDULES)
            ]
        )
        ids = [str(each.id) for each in responses if each.ok]
        own_stack.kill(ticker.name)
        unstaged = await tenant.runs()
        tickers = await asyncio.gather(
            *(start(own_stack, ServiceKind.TICKER, number, **settings) for number in (1, 2))
        )

        runs = await tenant.until_runs(SCHEDULES * DURATION, "succeeded", within=2 * WAIT_TIMEOUT)
        staged = [await count_of(each, RUNS_STAGED) for each in tickers]
        all_runs = await tenant.runs()

    expected = Counter(
        {(id_, first + timedelta(seconds=n)): 1 for id_ in ids for n in range(DURATION)}
    )
    calls = target.calls("each")
    record_property("staged", " and ".join(f"{count:g}" for count in staged))
    assert unstaged == []
    assert len(all_runs) == len(runs)
    assert Counter((call.schedule_id, call.scheduled_for) for call in calls) == expected
    assert_each_once(calls, runs, SCHEDULES * DURATION)
    assert min(staged) > 0, "One ticker had no work."
    assert sum(staged) == SCHEDULES * DURATION


@pytest.mark.requirement("S96")
async def test_remaining_ticker_stages_new_schedules_and_those_of_a_killed_ticker_alike(
    own_stack: Stack, target: Target
) -> None:
    await asyncio.to_thread(own_stack.start, TWO_TICKERS, **SHORT_HORIZON)
    async with own_stack.tenant("remaining") as tenant:
        hook = target.http("remaining")
        old = await put_spread(tenant, hook, OLD, first=FIRST_DUE, over=SPREAD, prefix="old")
        unstaged = await tenant.runs()
        own_stack.kill(TICKERS[0])
        new = await put_spread(tenant, hook, NEW, first=FIRST_DUE - 1, over=SPREAD, prefix="new")

        runs = await tenant.until_runs(OLD + NEW, "succeeded", within=60)
        passes = await tenant.ledger.fetch(_STAGED_TOGETHER, old, new, tenant.name)

    assert unstaged == []
    assert own_stack.services.process(TICKERS[0]) is None
    assert any(row["both"] for row in passes), "No pass staged runs of both kinds."
    assert_each_once(target.calls("remaining"), runs, OLD + NEW)
