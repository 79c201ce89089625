"""The promotion of a lagging standby: no target sees a token fall, and each time has a record."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import asyncpg
import pytest
from tests.acceptance.faults import until_called, until_ready
from tests.acceptance.recording_target import Call, Target
from tests.acceptance.stack import Stack, Tenant, now
from tests.rig.polling import until
from tests.rig.servers import Servers, server_directory
from tests.rig.standby import StandbyPair

from harebell.audit.audit import Scope, run_audit
from harebell.audit.model.records import FindingKind
from harebell.audit.store import connect_read_only
from harebell.dev.plan import ServiceCounts
from harebell.domain.run_states import SEQ_BITS

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

COUNTS = ServiceCounts(executors=2)
LOST_CALLS = 6  # of the recurring schedule, of which the standby gets no record
READY_TIMEOUT = 30.0  # seconds from the promotion until every service works again
END_TIMEOUT = 60.0  # seconds


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandbyPair]:
    with (
        server_directory(tmp_path_factory.mktemp("databases")) as directory,
        StandbyPair.open(directory, is_synchronous=False) as opened,
    ):
        yield opened


@pytest.fixture
def stack(
    servers: Servers, pair: StandbyPair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    given = replace(servers, database_url=pair.database_url)
    with Stack.open(given, tmp_path_factory.mktemp("failover")) as opened:
        opened.start(COUNTS)
        yield opened


@pytest.mark.requirement("S92", "ASK-14")
async def test_tokens_rise_and_the_audit_is_clean_when_a_lagging_standby_is_promoted(
    stack: Stack,
    pair: StandbyPair,
    target: Target,
    record_property: Callable[[str, object], None],
) -> None:
    began = now()
    async with stack.tenant("lagging") as tenant:
        await tenant.put("second", {"every": "1s"}, target.http("second"), catch_up={"mode": "all"})
        retry = {"max_attempts": 50, "backoff": {"base": "400ms", "factor": 1, "jitter": "none"}}
        hook = target.http("flaky", broken="flaky")
        await tenant.put("flaky", {"now": True}, hook, retry=retry)
        await until_called(target, "second", 2)
        await until_called(target, "flaky", 2)
        await pair.stop_replication()
        lost_from = len(target.calls("second"))
        await until_called(target, "second", lost_from + LOST_CALLS)
        await until_called(target, "flaky", 8)

    await asyncio.to_thread(pair.kill_primary)
    promoted_at = now()
    await asyncio.to_thread(pair.promote)
    recovery = await until_ready(stack, COUNTS, within=READY_TIMEOUT)

    async with stack.tenant("lagging") as tenant:
        epoch = await tenant.ledger.fetchval("SELECT harebell_epoch()")
        again = await until_repeated(target, epoch)
        await asyncio.to_thread(target.fix, "flaky")
        await tenant.harebell.cancel(key="second")
        ended = await until_ended(tenant)
        async with connect_read_only(stack.database_url) as ledger:
            report = await run_audit(
                ledger, began, scope=Scope(tenant="lagging"), late_after=timedelta(hours=1)
            )

    first_start = min(c.started_at for c in target.calls("second") if c.token >> SEQ_BITS == epoch)
    record_property("ready", f"{recovery:.1f} s after the promotion")
    record_property("first start", f"{(first_start - promoted_at).total_seconds():.1f} s")
    record_property("repeated runs", len(again))
    assert [each for each in report.findings if each.kind is not FindingKind.LATE] == []
    calls = [*target.calls("second"), *target.calls("flaky")]
    assert_tokens_rise(calls)
    recorded = {row["scheduled_for"] for row in ended}
    assert {call.scheduled_for for call in calls} <= recorded


async def until_repeated(target: Target, epoch: int) -> set[str]:
    """Wait until runs of both schedules that the standby did not know are called again."""

    async def repeated() -> set[str]:
        found = [of_two_epochs(target.calls(path), epoch) for path in ("second", "flaky")]
        return found[0] | found[1] if all(found) else set()

    return await until(repeated, within=END_TIMEOUT, what="a second call of a lost run")


def of_two_epochs(calls: list[Call], epoch: int) -> set[str]:
    epochs: dict[str, set[int]] = defaultdict(set)
    for call in calls:
        epochs[call.run_id].add(call.token >> SEQ_BITS)
    return {run for run, seen in epochs.items() if len(seen) > 1 and epoch in seen}


async def until_ended(tenant: Tenant) -> list[asyncpg.Record]:
    async def ended() -> list[asyncpg.Record]:
        runs = await tenant.runs()
        return runs if all(run["finished_at"] is not None for run in runs) else []

    return await until(ended, within=END_TIMEOUT, what="the end of every run")


def assert_tokens_rise(calls: list[Call]) -> None:
    """Assert that each call of a run has its key and a higher token than the calls before it."""
    by_run: dict[str, list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda each: each.started_at):
        by_run[call.run_id].append(call)
    for run, of_run in by_run.items():
        tokens = [call.token for call in of_run]
        assert tokens == sorted(set(tokens)), run
        assert {call.idempotency_key for call in of_run} == {run}
