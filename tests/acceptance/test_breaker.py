"""Circuit breakers on a running stack: a target that is down, and one that is under maintenance."""

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
from tests.acceptance.stack import Stack, Tenant, now, until
from tests.rig.servers import Servers

from harebell.contract.amqp_names import EVENTS
from harebell.contract.downstream import downstream_of_json
from harebell.dev.plan import ServiceCounts, name_of

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

COUNTS = ServiceCounts(dispatchers=2)
REST = 3.0  # seconds
PROBES = 1  # of each dispatcher, in each rest
ATTEMPTS = 5  # that open it, when half of them fail
LONG = 60.0  # seconds: held runs come round within half a minute
SETTINGS = {
    "HAREBELL_BREAKER_MODE": "auto",
    "HAREBELL_BREAKER_MIN_CALLS": str(ATTEMPTS),
    "HAREBELL_BREAKER_OPEN_DURATION": f"{REST:g}s",
    "HAREBELL_BREAKER_HALF_OPEN_CALLS": str(PROBES),
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
    """Another host, as far as breakers know: it has a port of its own."""
    with Target.open(tmp_path_factory.mktemp("neighbour") / "calls.jsonl") as opened:
        yield opened


def downstream(target: Target) -> str:
    return downstream_of_json({"http": {"url": target.url("")}})


@dataclass
class Ear:
    """What a service that binds to breakers' events is told."""

    told: list[dict[str, Any]] = field(default_factory=list)

    async def hear(self, message: AbstractIncomingMessage) -> None:
        verb = (message.routing_key or "").removeprefix("harebell.breaker.")
        self.told += [{"verb": verb, **each["data"]} for each in orjson.loads(message.body)]

    def verbs(self, name: str) -> list[str]:
        return [each["verb"] for each in self.told if each["downstream"] == name]


@asynccontextmanager
async def listening(stack: Stack) -> AsyncIterator[Ear]:
    ear = Ear()
    async with await aio_pika.connect(stack.amqp_url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(EVENTS, "*.breaker.#")
        await queue.consume(ear.hear, no_ack=True)
        yield ear


async def acts(tenant: Tenant, name: str) -> str | None:
    """What the breaker does, as `harebell breaker list` has it."""
    listed = await tenant.harebell.breakers()
    return next((each.acts for each in listed if each.downstream == name), None)


async def until_acts(tenant: Tenant, name: str, wanted: str | None) -> None:
    async def so() -> bool:
        return await acts(tenant, name) == wanted

    await until(so, within=LONG, what=f"{name} is {wanted}")


async def until_held(stack: Stack, count: int) -> None:
    async def so() -> bool:
        output = await Scrape.collect(stack, COUNTS)
        return output.total("harebell_deferred_tickets", gate="breaker") >= count

    await until(so, within=LONG, what=f"{count} tickets are held")


async def attempts(tenant: Tenant, key: str) -> int:
    counted: int = await tenant.ledger.fetchval(
        "SELECT count(*) FROM attempts JOIN schedules ON id = schedule_id "
        "WHERE tenant = $1 AND key LIKE $2",
        tenant.name,
        f"{key}%",
    )
    return counted


@pytest.mark.requirement("S113")
async def test_a_target_that_is_down_is_left_alone_and_probed_and_all_its_runs_are_made_up(
    stack: Stack, target: Target, neighbour: Target
) -> None:
    name = downstream(target)
    down = target.http("till", broken="the-till")
    async with stack.tenant("down") as tenant, listening(stack) as ear:
        for number in range(ATTEMPTS):
            await tenant.put(f"first-{number}", {"now": True}, down, retry=PERSISTENT)
        await until_acts(tenant, name, "open")
        opened_at = now()
        for number in range(20):
            await tenant.put(f"held-{number}", {"now": True}, down, retry=PERSISTENT)
        await until_held(stack, 20)
        for number in range(5):
            await tenant.put(f"other-{number}", {"now": True}, neighbour.http("well"))
        await tenant.until_runs(5, "succeeded")
        spent = await attempts(tenant, "held-")
        rests = (now() - opened_at).total_seconds() / REST + 1

        target.fix("the-till")
        await tenant.until_runs(ATTEMPTS + 20 + 5, "succeeded", within=LONG)
        await until_acts(tenant, name, "closed")

    assert spent <= rests * PROBES * COUNTS.dispatchers, "attempts were spent while it was open"
    assert max(call.late for call in neighbour.calls("well")) < REST
    assert [call.ok for call in target.calls("till")].count(True) == ATTEMPTS + 20
    verbs = ear.verbs(name)
    assert verbs[0] == "opened"
    assert verbs.index("opened") < verbs.index("half_opened") < verbs.index("closed")
    assert downstream(neighbour) not in {each["downstream"] for each in ear.told}


@pytest.mark.requirement("S113")
async def test_under_maintenance_nothing_is_called_though_every_service_is_started_anew(
    stack: Stack, neighbour: Target
) -> None:
    name = downstream(neighbour)
    async with stack.tenant("maintenance") as tenant, listening(stack) as ear:
        forced = await tenant.harebell.open_breaker(
            name, until=now() + timedelta(hours=1), note="a new roof"
        )
        for number in range(10):
            await tenant.put(f"held-{number}", {"now": True}, neighbour.http("roof"))
        late = await tenant.put("late", {"now": True}, neighbour.http("roof"), expires_after="1s")
        await until_held(stack, 10)

        await asyncio.to_thread(restart, stack)
        await until_held(stack, 10)
        (shown,) = [b for b in await tenant.harebell.breakers() if b.downstream == name]
        (expired,) = await tenant.until_runs(1, "expired", within=2 * LONG)
        called = neighbour.calls("roof")
        released = await tenant.harebell.reset_breaker(name)
        runs = await tenant.until_runs(10, "succeeded", within=LONG)

    assert (forced.status, released.status) == ("forced_open", "automatic")
    assert (shown.acts, shown.forced, shown.note) == ("open", "open", "a new roof")
    assert called == []
    assert (str(expired["schedule_id"]), expired["attempt"]) == (late, 0)
    assert [run["attempt"] for run in runs] == [1] * 10
    assert ear.verbs(name) == ["forced", "reset"]


def restart(stack: Stack) -> None:
    """All but the executor, in good order."""
    stack.stop(*(name_of(kind, number) for kind, number in COUNTS.members()))
    stack.start(COUNTS, **SETTINGS)
