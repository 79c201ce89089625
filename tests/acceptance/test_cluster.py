"""A cluster of three RabbitMQ nodes under load: kills and splits of one node or of two."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from tests.acceptance.cluster_stack import (
    BACKLOG_TIMEOUT,
    LOAD_DURATION,
    LOAD_SIZE,
    ClusterStack,
    Load,
)
from tests.acceptance.faults import assert_each_once, put_spread, until_called
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import now
from tests.rig.cluster import SIZE
from tests.rig.servers import Servers

from harebell.client import BrokerUnavailable, Client
from harebell.storage.runs.recovery import LOST_AFTER
from harebell.ticker.recovery.rescuer import TICKET_CHECK_INTERVAL

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

MAX_CLAIM_AHEAD = 2.0  # seconds between the claim and the start of a run
SPLIT_DURATION = (
    3.0  # seconds, longer than the time after which the ticker suspects a silent lease holder
)
CLAIMED_RUNS = 4  # runs in progress at the split
MINORITY_RUNS = 40  # runs whose only executor connects to the isolated node
TASK = {"task": {"name": "harebell.echo"}}
MAX_PAUSE = 10.0  # seconds that the loss of one node may delay runs
RECOVERY_TIMEOUT = (
    LOST_AFTER + 2 * TICKET_CHECK_INTERVAL
)  # seconds; the few whose tickets the dead leader had in hand
MAX_LATE_SHARE = 0.1  # of the load may wait for the recovery of its tickets
Record = Callable[[str, object], None]


@pytest.fixture(scope="module")
def clustered(
    servers: Servers, tmp_path_factory: pytest.TempPathFactory, record_testsuite_property: Record
) -> Iterator[ClusterStack]:
    started_at = time.monotonic()
    with ClusterStack.open(servers, tmp_path_factory.mktemp("clustered")) as opened:
        record_testsuite_property("clustered", f"{time.monotonic() - started_at:.1f} s to start")
        yield opened


@pytest.mark.requirement("S62")
async def test_quorum_queue_has_a_member_on_each_node(clustered: ClusterStack) -> None:
    await clustered.by_leadership()

    members = Counter(len(queue["members"]) for queue in await clustered.queues())

    assert members.keys() == {SIZE}


@pytest.mark.measures
@pytest.mark.requirement("S62")
@pytest.mark.parametrize("victim", ["leader", pytest.param("follower", marks=pytest.mark.chaos)])
async def test_cluster_runs_each_run_once_when_a_node_is_killed_under_load(
    victim: str, clustered: ClusterStack, target: Target, record_property: Record
) -> None:
    ranked = await clustered.by_leadership()
    node = ranked[0] if victim == "leader" else ranked[-1]
    async with clustered.stack.tenant(f"killed-{victim}") as tenant:
        load = await Load.put(tenant, target, f"killed-{victim}")
        async with clustered.without(node):
            ready = await clustered.until_ready()
            runs = await tenant.until_runs(
                LOAD_SIZE, "succeeded", within=LOAD_DURATION + BACKLOG_TIMEOUT
            )

    record_property("ready", f"{ready:.2f} s after the kill")
    record_property("lateness", load.lateness)
    assert len(load.expected) == LOAD_SIZE
    assert_each_once(load.calls, runs, LOAD_SIZE)
    assert load.late[-1] < RECOVERY_TIMEOUT
    assert sum(late > MAX_PAUSE for late in load.late) < MAX_LATE_SHARE * LOAD_SIZE


@pytest.mark.requirement("S97")
async def test_brief_split_changes_no_lease_holder(clustered: ClusterStack, target: Target) -> None:
    """The lease holder keeps its runs, because leases are in the database and not in the broker."""
    node = (await clustered.by_leadership())[0]
    async with clustered.one_sided(node, "brief") as pool, clustered.stack.tenant("brief") as user:
        hook = target.http("brief", sleep=SPLIT_DURATION + 2)
        await asyncio.gather(
            *(user.put(f"long-{n}", {"now": True}, hook, pool=pool) for n in range(CLAIMED_RUNS))
        )
        await until_called(target, "brief", CLAIMED_RUNS)
        claimed = await user.runs("running")
        async with clustered.split(node):
            await asyncio.sleep(SPLIT_DURATION)
        runs = await user.until_runs(CLAIMED_RUNS, "succeeded")

    assert len(claimed) == CLAIMED_RUNS
    assert_each_once(target.calls("brief"), runs, CLAIMED_RUNS)


@pytest.mark.requirement("S100")
@pytest.mark.chaos
async def test_minority_confirms_and_claims_nothing_while_the_majority_continues(
    clustered: ClusterStack, target: Target, record_property: Record
) -> None:
    node = (await clustered.by_leadership())[0]
    async with (
        clustered.one_sided(node, "minority") as pool,
        clustered.stack.tenant("minority") as cut_off,
        clustered.stack.tenant("majority") as tenant,
    ):
        hook = target.http("aside")
        minority_ids = await put_spread(
            cut_off, hook, MINORITY_RUNS, first=1, over=2 * LOAD_DURATION, pool=pool
        )
        load = await Load.put(tenant, target, "majority")
        async with clustered.split(node):
            ready = await clustered.until_ready()
            cut_at = now()
            await assert_nothing_is_confirmed(node.amqp_url)
            runs = await tenant.until_runs(
                LOAD_SIZE, "succeeded", within=LOAD_DURATION + BACKLOG_TIMEOUT
            )
            waiting = await cut_off.runs("staged")
            healed_at = now()
        late = await cut_off.until_runs(MINORITY_RUNS, "succeeded", within=BACKLOG_TIMEOUT)

    calls = target.calls("aside")
    recovery = max(call.started_at for call in calls) - healed_at
    record_property("ready", f"{ready:.2f} s after the cut")
    record_property("lateness", load.lateness)
    record_property("healed", f"{recovery.total_seconds():.2f} s to the last run")
    assert len(minority_ids) == MINORITY_RUNS
    assert waiting
    assert_each_once(load.calls, runs, LOAD_SIZE)
    assert_each_once(calls, late, MINORITY_RUNS)
    claimed = cut_at + timedelta(seconds=MAX_CLAIM_AHEAD)
    assert not [call for call in calls if claimed < call.started_at < healed_at]


@pytest.mark.requirement("S62", "S100")
async def test_cluster_delays_runs_and_loses_none_when_two_of_three_nodes_are_killed(
    clustered: ClusterStack, target: Target, record_property: Record
) -> None:
    *lost, _ = await clustered.by_leadership()
    async with clustered.stack.tenant("most-lost") as tenant:
        load = await Load.put(tenant, target, "most-lost")
        async with clustered.without(*lost):
            await assert_nothing_is_confirmed(clustered.cluster.amqp_url)
            called_before = await asyncio.to_thread(lambda: len(load.calls))
            await asyncio.sleep(LOAD_DURATION)
            waiting = await tenant.runs("staged")
        returned_at = now()
        runs = await tenant.until_runs(LOAD_SIZE, "succeeded", within=BACKLOG_TIMEOUT)
    await clustered.until_ready()

    recovery = max(call.started_at for call in load.calls) - returned_at
    record_property("recovered", f"{recovery.total_seconds():.2f} s to the last run")
    assert 0 < called_before < LOAD_SIZE
    assert waiting
    assert_each_once(load.calls, runs, LOAD_SIZE)


async def assert_nothing_is_confirmed(amqp_url: str) -> None:
    with pytest.raises(BrokerUnavailable):
        async with Client.connect(amqp_url, tenant="refused", timeout=5.0) as harebell:
            await harebell.put({"key": "never", "when": {"now": True}, "target": TASK})
