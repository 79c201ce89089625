"""The loss of all broker data: the recovery publishes the tickets of every row again."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from tests.acceptance.cluster_stack import PAIRS, READY_TIMEOUT
from tests.acceptance.faults import assert_each_once, put_spread, until_ready
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack
from tests.rig.servers import Servers, private_servers

from harebell.dev.rabbitmq import Broker
from harebell.dev.servers import PrivateServers
from harebell.storage.runs.recovery import LOST_AFTER, LOST_IN_ANY_CASE_AFTER
from harebell.ticker.recovery.rescuer import TICKET_CHECK_INTERVAL

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

RUNS = 200
FIRST_DUE, SPREAD = 10.0, 4.0  # seconds from now on


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServers]:
    started = private_servers(tmp_path_factory.mktemp("wiped-servers"))
    try:
        started.start()
        yield started
    finally:
        started.discard()


@pytest.fixture(scope="module")
def stack(private: PrivateServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Yield a stack on the default virtual host, because a wiped broker has no other."""
    given = Servers(private.amqp_url, private.database_url, None)
    with Stack.open(given, tmp_path_factory.mktemp("wiped")) as opened:
        opened.start(PAIRS)
        yield opened


def wipe(broker: Broker) -> None:
    broker.discard()
    broker.start()


@pytest.mark.measures
@pytest.mark.requirement("S35", "S102")
async def test_runs_of_a_wiped_broker_execute_once(
    private: PrivateServers,
    stack: Stack,
    target: Target,
    record_property: Callable[[str, object], None],
) -> None:
    async with stack.tenant("wiped") as tenant:
        expected = await put_spread(
            tenant, target.http("wiped"), RUNS, first=FIRST_DUE, over=SPREAD
        )
        staged = await tenant.until_runs(RUNS, "staged", within=FIRST_DUE)
        await asyncio.to_thread(wipe, private.broker)
        ready = await until_ready(stack, PAIRS, within=READY_TIMEOUT)
        runs = await tenant.until_runs(
            RUNS, "succeeded", within=SPREAD + LOST_IN_ANY_CASE_AFTER + TICKET_CHECK_INTERVAL
        )
        after = await tenant.put("after", {"now": True}, target.http("after"))
        await tenant.until_runs(RUNS + 1, "succeeded")

    late = sorted(call.late for call in target.calls("wiped"))
    record_property("ready", f"{ready:.2f} s after the port opened")
    record_property("lateness", f"p50 {late[RUNS // 2]:.3f} s, worst {late[-1]:.3f} s")
    assert len(set(expected)) == len(staged) == RUNS
    assert_each_once(target.calls("wiped"), runs, RUNS)
    assert LOST_AFTER < late[-1] < LOST_IN_ANY_CASE_AFTER + 2 * TICKET_CHECK_INTERVAL
    assert [call.schedule_id for call in target.calls("after")] == [after]
