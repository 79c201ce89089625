"""Circuit breakers on a running stack: a failing target and a target under maintenance."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import aio_pika
import orjson
import pytest
from aio_pika.abc import AbstractIncomingMessage
from tests.acceptance.recording_target import Target
from tests.acceptance.scrape import Scrape
from tests.acceptance.stack import Stack, Tenant, now
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.contract.amqp_names import EVENTS
from harebell.contract.downstream import downstream_of_json
from harebell.dev.plan import ServiceCounts, name_of

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

COUNTS = ServiceCounts(dispatchers=2)
OPEN_DURATION = 3.0  # seconds
HALF_OPEN_CALLS = 1  # of each dispatcher, in each half-open period
MIN_CALLS = 5  # a breaker opens when half of them fail
LONG_TIMEOUT = 60.0  # seconds; a deferred ticket returns within half a minute
SETTINGS = {
    "HAREBELL_BREAKER_MODE": "auto",
    "HAREBELL_BREAKER_MIN_CALLS": str(MIN_CALLS),
    "HAREBELL_BREAKER_OPEN_DURATION": f"{OPEN_DURATION:g}s",
    "HAREBELL_BREAKER_HALF_OPEN_CALLS": str(HALF_OPEN_CALLS),
}
PERSISTENT = {
    "max_attempts": 1_000,
    "backoff": {"base": "500ms", "factor": 1, "cap": "500ms", "jitter": "none"},
}


@pytest.fixture(scope="module")
def stack(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack.open(servers, tmp_path_factory.mktemp("breaker")) as stack:
        stack.start(COUNTS, **SETTINGS)
        yield stack


@pytest.fixture
def neighbour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Yield a target with another port, which is another downstream."""
    with Target.open(tmp_path_factory.mktemp("neighbour") / "calls.jsonl") as opened:
        yield opened


def downstream(target: Target) -> str:
    return downstream_of_json({"http": {"url": target.url("")}})


@dataclass
class BreakerEvents:
    """The events of breakers that one subscriber receives."""

    received: list[dict[str, Any]] = field(default_factory=list)

    async def receive(self, message: AbstractIncomingMessage) -> None:
        verb = (message.routing_key or "").partition(".breaker.")[2]
        self.received += [{"verb": verb, **each["data"]} for each in orjson.loads(message.body)]

    def verbs(self, name: str) -> list[str]:
        return [each["verb"] for each in self.received if each["downstream"] == name]


@asynccontextmanager
async def breaker_events(stack: Stack) -> AsyncIterator[BreakerEvents]:
    events = BreakerEvents()
    async with await aio_pika.connect(stack.amqp_url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(EVENTS, "*.breaker.#")
        await queue.consume(events.receive, no_ack=True)
        yield events


async def breaker_action(tenant: Tenant, name: str) -> str | None:
    """Return the present action of the breaker in `harebell breaker list`."""
    listed = await tenant.harebell.breakers()
    return next((each.effective_state for each in listed if each.downstream == name), None)


async def until_action(tenant: Tenant, name: str, expected: str | None) -> None:
    async def is_reached() -> bool:
        return await breaker_action(tenant, name) == expected

    await until(is_reached, within=LONG_TIMEOUT, what=f"the action {expected} of {name}")


async def until_deferred(stack: Stack, count: int) -> None:
    async def is_reached() -> bool:
        scrape = await Scrape.collect(stack, COUNTS)
        return scrape.total("harebell_deferred_tickets", gate="breaker") >= count

    await until(is_reached, within=LONG_TIMEOUT, what=f"the deferral of {count} tickets")


async def attempts(tenant: Tenant, key: str) -> int:
    counted: int = await tenant.ledger.fetchval(
        "SELECT count(*) FROM attempts JOIN schedules ON id = schedule_id "
        "WHERE tenant = $1 AND key LIKE $2",
        tenant.name,
        f"{key}%",
    )
    return counted


@pytest.mark.measures
@pytest.mark.long
@pytest.mark.requirement("S113")
async def test_breaker_defers_runs_of_a_failing_target_probes_it_and_loses_no_run(
    stack: Stack, target: Target, neighbour: Target
) -> None:
    name = downstream(target)
    down = target.http("till", broken="the-till")
    async with stack.tenant("down") as tenant, breaker_events(stack) as events:
        for number in range(MIN_CALLS):
            await tenant.put(f"first-{number}", {"now": True}, down, retry=PERSISTENT)
        await until_action(tenant, name, "open")
        opened_at = now()
        for number in range(20):
            await tenant.put(f"deferred-{number}", {"now": True}, down, retry=PERSISTENT)
        await until_deferred(stack, 20)
        for number in range(5):
            await tenant.put(f"other-{number}", {"now": True}, neighbour.http("well"))
        await tenant.until_runs(5, "succeeded")
        used_attempts = await attempts(tenant, "deferred-")
        periods = (now() - opened_at).total_seconds() / OPEN_DURATION + 1

        target.fix("the-till")
        await tenant.until_runs(MIN_CALLS + 20 + 5, "succeeded", within=LONG_TIMEOUT)
        await until_action(tenant, name, "closed")

    assert used_attempts <= periods * HALF_OPEN_CALLS * COUNTS.dispatchers, (
        "an open breaker let attempts pass"
    )
    assert max(call.late for call in neighbour.calls("well")) < OPEN_DURATION
    assert [call.ok for call in target.calls("till")].count(True) == MIN_CALLS + 20
    verbs = events.verbs(name)
    assert verbs[0] == "opened"
    assert verbs.index("opened") < verbs.index("half_opened") < verbs.index("closed")
    assert downstream(neighbour) not in {each["downstream"] for each in events.received}


@pytest.mark.long
@pytest.mark.requirement("S113", "S59")
async def test_accepted_calls_close_a_breaker_before_their_workers_report(
    stack: Stack, target: Target
) -> None:
    name = downstream(target)
    desk = target.http("desk", broken="the-desk", accepted=202)
    desk["http"]["completion"] = "worker"

    async def are_accepted() -> bool:
        return [call.ok for call in target.calls("desk")].count(True) == MIN_CALLS

    async with stack.tenant("desk") as tenant, breaker_events(stack) as events:
        for number in range(MIN_CALLS):
            await tenant.put(f"desk-{number}", {"now": True}, desk, retry=PERSISTENT)
        await until_action(tenant, name, "open")
        target.fix("the-desk")
        await until_action(tenant, name, "closed")
        running = await tenant.until_runs(MIN_CALLS, "running", within=LONG_TIMEOUT)
        await until(are_accepted, within=LONG_TIMEOUT, what="an accepted call of each run")
        finished = await tenant.runs("succeeded")
        for call in target.calls("desk"):
            if call.ok:
                await tenant.harebell.complete_run(call.run_id, call.token)
        await tenant.until_runs(MIN_CALLS, "succeeded")

    assert (len(running), finished) == (MIN_CALLS, [])
    assert events.verbs(name)[-1] == "closed"


@pytest.mark.long
@pytest.mark.requirement("S113")
async def test_forced_open_breaker_survives_a_restart_of_every_service(
    stack: Stack, neighbour: Target
) -> None:
    name = downstream(neighbour)
    async with stack.tenant("maintenance") as tenant, breaker_events(stack) as events:
        forced = await tenant.harebell.open_breaker(
            name, until=now() + timedelta(hours=1), note="a new roof"
        )
        for number in range(10):
            await tenant.put(f"deferred-{number}", {"now": True}, neighbour.http("roof"))
        late = await tenant.put("late", {"now": True}, neighbour.http("roof"), expires_after="1s")
        await until_deferred(stack, 10)

        await asyncio.to_thread(restart, stack)
        await until_deferred(stack, 10)
        (shown,) = [b for b in await tenant.harebell.breakers() if b.downstream == name]
        (expired,) = await tenant.until_runs(1, "expired", within=2 * LONG_TIMEOUT)
        called = neighbour.calls("roof")
        reset = await tenant.harebell.reset_breaker(name)
        runs = await tenant.until_runs(10, "succeeded", within=LONG_TIMEOUT)

    assert (forced.status, reset.status) == ("forced_open", "automatic")
    assert (shown.effective_state, shown.forced, shown.note) == ("open", "open", "a new roof")
    assert called == []
    assert (str(expired["schedule_id"]), expired["attempt"]) == (late, 0)
    assert [run["attempt"] for run in runs] == [1] * 10
    assert events.verbs(name) == ["forced", "reset"]


def restart(stack: Stack) -> None:
    """Stop all services with SIGTERM and start them again."""
    stack.stop(*(name_of(kind, number) for kind, number in COUNTS.members()))
    stack.start(COUNTS, **SETTINGS)
