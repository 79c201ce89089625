"""Three nodes of RabbitMQ as one: a node killed, a node cut off, most of them lost, under load."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from tests.acceptance.cluster_stack import BACKLOG_TIMEOUT, LOAD_SIZE, LOAD_DURATION, ClusterStack, Load
from tests.acceptance.faults import assert_each_once, put_spread, until_called
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import now
from tests.rig.cluster import SIZE
from tests.rig.servers import Servers

from harebell.client import BrokerUnavailable, Client
from harebell.storage.runs.recovery import LOST_AFTER
from harebell.ticker.recovery.rescuer import TICKET_CHECK_INTERVAL

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

LONGEST_HOLD = 2.0  # seconds that an executor holds what it has claimed before it starts
BRIEF = 3.0  # seconds of a split; more than it takes until a silent holder is suspect
HELD = 4  # runs in hand when it comes
ASIDE = 40  # runs whose only executor knows the one node that is cut off
TASK = {"task": {"name": "harebell.echo"}}
LONGEST_PAUSE = 10.0  # seconds that the loss of one node may hold up runs
SWEPT = LOST_AFTER + 2 * TICKET_CHECK_INTERVAL  # seconds; the few whose tickets the dead leader had in hand
IN_HAND = 0.1  # of the load
Record = Callable[[str, object], None]


@pytest.fixture(scope="module")
def clustered(
    servers: Servers, tmp_path_factory: pytest.TempPathFactory, record_testsuite_property: Record
) -> Iterator[ClusterStack]:
    began = time.monotonic()
    with ClusterStack.open(servers, tmp_path_factory.mktemp("clustered")) as opened:
        record_testsuite_property("clustered", f"{time.monotonic() - began:.1f} s to start")
        yield opened


@pytest.mark.requirement("S62")
async def test_every_quorum_queue_has_a_member_on_each_node(clustered: ClusterStack) -> None:
    await clustered.by_leadership()

    members = Counter(len(queue["members"]) for queue in await clustered.queues())

    assert members.keys() == {SIZE}


@pytest.mark.requirement("S62")
@pytest.mark.parametrize("who", ["leader", pytest.param("follower", marks=pytest.mark.chaos)])
async def test_a_node_killed_under_load_loses_and_doubles_nothing(
    who: str, clustered: ClusterStack, target: Target, record_property: Record
) -> None:
    ranked = await clustered.by_leadership()
    node = ranked[0] if who == "leader" else ranked[-1]
    async with clustered.stack.tenant(f"killed-{who}") as tenant:
        load = await Load.put(tenant, target, f"killed-{who}")
        async with clustered.without(node):
            ready = await clustered.until_ready()
            runs = await tenant.until_runs(LOAD_SIZE, "succeeded", within=LOAD_DURATION + BACKLOG_TIMEOUT)

    record_property("ready", f"{ready:.2f} s after the kill")
    record_property("lateness", load.lateness)
    assert len(load.expected) == LOAD_SIZE
    assert_each_once(load.calls, runs, LOAD_SIZE)
    assert load.late[-1] < SWEPT
    assert sum(late > LONGEST_PAUSE for late in load.late) < IN_HAND * LOAD_SIZE


@pytest.mark.requirement("S97")
async def test_a_brief_split_changes_no_owner(clustered: ClusterStack, target: Target) -> None:
    """Who holds runs goes on with them: leases are the database's, not the broker's."""
    node = (await clustered.by_leadership())[0]
    async with clustered.one_sided(node, "brief") as pool, clustered.stack.tenant("brief") as user:
        hook = target.http("brief", sleep=BRIEF + 2)
        await asyncio.gather(
            *(user.put(f"long-{n}", {"now": True}, hook, pool=pool) for n in range(HELD))
        )
        await until_called(target, "brief", HELD)
        held = await user.runs("running")
        async with clustered.split(node):
            await asyncio.sleep(BRIEF)
        runs = await user.until_runs(HELD, "succeeded")

    assert len(held) == HELD
    assert_each_once(target.calls("brief"), runs, HELD)


@pytest.mark.requirement("S100")
@pytest.mark.chaos
async def test_a_minority_confirms_nothing_and_claims_nothing_while_the_rest_goes_on(
    clustered: ClusterStack, target: Target, record_property: Record
) -> None:
    node = (await clustered.by_leadership())[0]
    async with (
        clustered.one_sided(node, "minority") as pool,
        clustered.stack.tenant("minority") as cut_off,
        clustered.stack.tenant("majority") as tenant,
    ):
        hook = target.http("aside")
        aside = await put_spread(cut_off, hook, ASIDE, first=1, over=2 * LOAD_DURATION, pool=pool)
        load = await Load.put(tenant, target, "majority")
        async with clustered.split(node):
            ready = await clustered.until_ready()
            cut_at = now()
            await assert_nothing_is_confirmed(node.amqp_url)
            runs = await tenant.until_runs(LOAD_SIZE, "succeeded", within=LOAD_DURATION + BACKLOG_TIMEOUT)
            waiting = await cut_off.runs("staged")
            healed_at = now()
        late = await cut_off.until_runs(ASIDE, "succeeded", within=BACKLOG_TIMEOUT)

    calls = target.calls("aside")
    done = max(call.started_at for call in calls) - healed_at
    record_property("ready", f"{ready:.2f} s after the cut")
    record_property("lateness", load.lateness)
    record_property("healed", f"{done.total_seconds():.2f} s to the last run")
    assert len(aside) == ASIDE
    assert waiting
    assert_each_once(load.calls, runs, LOAD_SIZE)
    assert_each_once(calls, late, ASIDE)
    claimed = cut_at + timedelta(seconds=LONGEST_HOLD)
    assert not [call for call in calls if claimed < call.started_at < healed_at]


@pytest.mark.requirement("S62", "S100")
async def test_two_of_three_nodes_lost_hold_up_runs_and_lose_none(
    clustered: ClusterStack, target: Target, record_property: Record
) -> None:
    *lost, _ = await clustered.by_leadership()
    async with clustered.stack.tenant("most-lost") as tenant:
        load = await Load.put(tenant, target, "most-lost")
        async with clustered.without(*lost):
            await assert_nothing_is_confirmed(clustered.cluster.amqp_url)
            left = await asyncio.to_thread(lambda: len(load.calls))
            await asyncio.sleep(LOAD_DURATION)
            waiting = await tenant.runs("staged")
        back_at = now()
        runs = await tenant.until_runs(LOAD_SIZE, "succeeded", within=BACKLOG_TIMEOUT)
    await clustered.until_ready()

    done = max(call.started_at for call in load.calls) - back_at
    record_property("recovered", f"{done.total_seconds():.2f} s to the last run")
    assert 0 < left < LOAD_SIZE
    assert waiting
    assert_each_once(load.calls, runs, LOAD_SIZE)


async def assert_nothing_is_confirmed(amqp_url: str) -> None:
    with pytest.raises(BrokerUnavailable):
        async with Client.connect(amqp_url, tenant="refused", timeout=5.0) as harebell:
            await harebell.put({"key": "never", "when": {"now": True}, "target": TASK})
