"""Repair of a topology that an operator has damaged: every run still executes once."""

import asyncio
from collections.abc import Callable, Iterator
from urllib.parse import quote, urlsplit

import pytest
from tests.acceptance.faults import assert_each_once, put_spread, until_called
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, now
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.connection.amqp import connect
from harebell.dev.plan import ServiceCounts
from harebell.messaging.declare import find_differences
from harebell.messaging.topology.bus import DISPATCHER, SYSTEM, TICKER
from harebell.messaging.topology.delay_queues import DELAY_TTLS_MS, delay_queue_name

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

RUNS = 200
FIRST_DUE = 3.0  # seconds until the first run, so that delay queues contain tickets at the fault
SPREAD = 12.0  # seconds between the first and the last run
REPAIR_TIMEOUT = 60.0  # seconds after the last due time until every run has ended

WORK = "queues/{}/harebell.work.default.normal"
# The paths of the management API that each fault deletes. {} is replaced by the virtual host.
DELETED_PATHS = {
    "purged": [
        f"queues/{{}}/{queue.name}/contents" for queue in SYSTEM.queues if queue.ttl_ms is not None
    ]
    + [f"{WORK}/contents", f"queues/{{}}/{DISPATCHER.name}/contents"],
    "work-queue": [WORK],
    "dispatcher-queue": [f"queues/{{}}/{DISPATCHER.name}"],
    "ticker-queue": [f"queues/{{}}/{TICKER.name}"],
    "delay-queues": [f"queues/{{}}/{delay_queue_name(ms)}" for ms in DELAY_TTLS_MS],
    "work-binding": ["bindings/{}/e/harebell.work/q/harebell.work.default.normal/default.normal"],
    "due-binding": [f"bindings/{{}}/e/harebell.due/q/{DISPATCHER.name}/%23"],
    "work-exchange": ["exchanges/{}/harebell.work"],
    "delay-exchange": ["exchanges/{}/harebell.delay"],
    "due-exchange": ["exchanges/{}/harebell.due"],
    "events-exchange": ["exchanges/{}/harebell.events"],
    "everything": [
        *(f"queues/{{}}/{queue.name}" for queue in SYSTEM.queues),
        *(f"exchanges/{{}}/{exchange.name}" for exchange in SYSTEM.exchanges),
    ],
}


# One fault of each kind. The other faults are similar and run in `make test-all`.
SHORT_FAULTS = ("purged", "ticker-queue", "delay-exchange", "everything")
PARAMETERS = [
    pytest.param(fault, marks=() if fault in SHORT_FAULTS else pytest.mark.long)
    for fault in DELETED_PATHS
]


@pytest.fixture(scope="module")
def broken_stack(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack.open(servers, tmp_path_factory.mktemp("broken")) as stack:
        stack.start(ServiceCounts(executors=2))
        yield stack


@pytest.mark.long
@pytest.mark.requirement("S102")
@pytest.mark.parametrize("fault", PARAMETERS)
async def test_topology_is_repaired_and_each_run_executes_once_after_a_deletion(
    fault: str,
    broken_stack: Stack,
    target: Target,
    record_property: Callable[[str, object], None],
) -> None:
    host = quote(urlsplit(broken_stack.amqp_url).path.removeprefix("/"), safe="")
    async with broken_stack.tenant(fault) as tenant:
        await put_spread(tenant, target.http(fault), RUNS, first=FIRST_DUE, over=SPREAD)
        await until_called(target, fault, RUNS // 10)

        for path in DELETED_PATHS[fault]:
            await asyncio.to_thread(broken_stack.servers.management, "DELETE", path.format(host))
        broken_at = now()
        runs = await tenant.until_runs(
            RUNS, "succeeded", within=FIRST_DUE + SPREAD + REPAIR_TIMEOUT
        )
        recovery = (
            max(call.started_at for call in target.calls(fault)) - broken_at
        ).total_seconds()

        late = max(call.late for call in target.calls(fault))
        record_property(
            "late", f"{late:.2f} s at most; the last began {recovery:.2f} s after the fault"
        )
        assert_each_once(target.calls(fault), runs, RUNS)
        await tenant.put("afterwards", {"now": True}, target.http(f"{fault}-afterwards"))
        await until_called(target, f"{fault}-afterwards")
    connection = await connect(broken_stack.amqp_url, name="test", properties={})

    async def is_complete() -> bool:  # also the parts that no message has used since the fault
        return await find_differences(connection, SYSTEM) == []

    async with connection:
        await until(is_complete, within=REPAIR_TIMEOUT, what="the whole topology")
