"""A small tenant, in turn without and with the flood of another tenant: its runs and its puts."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aio_pika
from tests.acceptance.production import Production
from tests.benchmarks.figures import Report, lateness
from tests.benchmarks.rig import Rig, Scale, start_lateness
from tests.benchmarks.starts import Starts
from tests.rig.servers import Servers

from harebell.client import Client
from harebell.contract.amqp_names import tenant_exchange
from harebell.contract.json_codec import encode_plain
from harebell.dev.plan import ServiceKind, name_of

VICTIM_RATE: Final = 40.0  # runs a second
QUIET_TASK: Final = {"task": {"name": "harebell.echo", "args": {}}}  # records no start
# The default quotas, without those that would refuse the flood or a part of it.
POLICY: Final = "defaults: {quotas: {schedules: null, puts_per_second: null}}\n"
FLOOD_EXPIRY: Final = "10s"
FLOOD_TIMEOUT: Final = 300.0  # seconds until the flood has expired
LOADING: Final = 4.0  # seconds between the loads, because the flood is loaded first

FLOOD, VICTIM = "acme", "umbrella"
FLOOD_COMMANDS: Final = 50_000
ITEMS: Final = 500  # puts in one message
WARM_PUTS: Final = 5  # whose times do not count
PUT_INTERVAL: Final = 0.1  # seconds between the answer to a put and the next put
TARGET: Final = {"task": {"name": "harebell.echo"}}


@dataclass(frozen=True)
class Size:
    """The runs and the puts of one sample."""

    victim_runs: int
    flood_runs: int  # of the other tenant, due at the first run of the victim
    puts: int


SMALL: Final = Size(victim_runs=200, flood_runs=10_000, puts=20)
FULL: Final = Size(victim_runs=400, flood_runs=50_000, puts=60)


async def tenants(rig: Rig, report: Report, scale: Scale) -> None:
    """Measure runs and answers of one tenant without and with the flood of another."""
    size = FULL if scale.full else SMALL
    policy = rig.starts.parent / "tenants.yml"
    policy.write_text(POLICY)
    try:
        restart(rig, HAREBELL_TENANTS_FILE=str(policy))
        await measure_runs(rig, report, scale, size)
    finally:
        rig.settings.pop("HAREBELL_TENANTS_FILE")
        stop(rig)
    try:
        for _ in range(scale.times):
            calm, flooded, left = await asyncio.to_thread(answers, rig, size, policy)
            report.add(
                "tenants answers",
                n=size.puts,
                flood=FLOOD_COMMANDS,
                left=left,  # commands of the flood that were not applied during the puts
                calm_ms=lateness(calm),
                flooded_ms=lateness(flooded),
            )
    finally:
        rig.start()


async def measure_runs(rig: Rig, report: Report, scale: Scale, size: Size) -> None:
    """Measure the lateness of the runs of one tenant without and with the runs of another."""
    pooled: dict[str, Starts] = {"calm_ms": [], "flooded_ms": []}
    for _ in range(scale.times):
        starts = {
            "calm_ms": await victim_starts(rig, size, flood=0),
            "flooded_ms": await victim_starts(rig, size, flood=size.flood_runs),
        }
        report.add(
            "tenants runs",
            n=size.victim_runs,
            flood=size.flood_runs,
            **{name: start_lateness(of) for name, of in starts.items()},
        )
        for name, of in starts.items():
            pooled[name] += of
    report.add(
        "tenants runs pooled",
        n=size.victim_runs * scale.times,
        flood=size.flood_runs,
        **{name: start_lateness(of) for name, of in pooled.items()},
    )


def restart(rig: Rig, **settings: str) -> None:
    """Start the services again with further settings."""
    stop(rig)
    rig.settings.update(settings)
    rig.start()


def stop(rig: Rig) -> None:
    """Stop the services of the rig."""
    rig.stop(*(name_of(kind, number) for kind, number in rig.counts.members()))


async def victim_starts(rig: Rig, size: Size, *, flood: int) -> Starts:
    """Return the starts of the victim. The rest of the flood expires before the next sample."""
    async with AsyncExitStack() as opened:
        attacker, victim = [await opened.enter_async_context(rig.tenant()) for _ in range(2)]
        waves = []
        if flood:
            load = rig.load(
                attacker, flood, later=LOADING, target=QUIET_TASK, expires_after=FLOOD_EXPIRY
            )
            waves.append(await load)
        waves.append(await rig.load(victim, size.victim_runs, rate=VICTIM_RATE))
        for wave in reversed(waves):
            await rig.until(wave.last)
            await rig.drained(wave, within=FLOOD_TIMEOUT)
        return await rig.started(size.victim_runs)


def answers(rig: Rig, size: Size, policy: Path) -> tuple[list[float], list[float], int]:
    """Return the answer times of the victim without and with a flood of commands [s].

    The broker has the definitions file, so each tenant has its own login and intake queue.
    """
    with prepared(rig.stack.servers, rig.starts.parent / "answers") as production:
        production.start(
            ServiceKind.INTAKE,
            ServiceKind.TICKER,
            HAREBELL_TENANTS_FILE=str(policy),
            HAREBELL_LOG_LEVEL="warning",
        )
        return asyncio.run(measure_answers(production, size))


@contextmanager
def prepared(servers: Servers, root: Path) -> Iterator[Production]:
    """Yield a broker with the definitions file, on a further virtual host."""
    with Production.open(servers, root, tenants=(FLOOD, VICTIM)) as production:
        yield production


async def measure_answers(
    production: Production, size: Size
) -> tuple[list[float], list[float], int]:
    """Return the answer times, and the commands of the flood that were not applied."""
    async with (
        production.client(VICTIM, timeout=60) as victim,
        production.stack.tenant(FLOOD) as flooder,
    ):
        await answer_times(victim, WARM_PUTS, "warm")
        calm = await answer_times(victim, size.puts, "calm")
        async with flooding(production.url(FLOOD)):
            flooded = await answer_times(victim, size.puts, "flooded")
            applied = await flooder.ledger.fetchval(
                "SELECT count(*) FROM schedules WHERE tenant = $1", FLOOD
            )
    return calm, flooded, FLOOD_COMMANDS - applied


@asynccontextmanager
async def flooding(url: str) -> AsyncIterator[None]:
    """Publish the flood, and enter the context when the broker has most of its messages."""
    bodies = [
        encode_plain([put(f"m{number}", item, "0 0 29 2 *") for item in range(ITEMS)])
        for number in range(FLOOD_COMMANDS // ITEMS)
    ]
    publishing = asyncio.create_task(publish(url, bodies))
    try:
        await asyncio.wait({publishing}, timeout=0.5)
        yield
    finally:
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)


async def publish(url: str, bodies: Sequence[bytes]) -> None:
    """Publish arrays of puts without a wait for their answers."""
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        exchange = await channel.get_exchange(tenant_exchange(FLOOD), ensure=False)
        messages = [aio_pika.Message(body, user_id=FLOOD) for body in bodies]
        await asyncio.gather(
            *(exchange.publish(message, f"{FLOOD}.schedule.put") for message in messages)
        )


async def answer_times(victim: Client, number: int, prefix: str) -> list[float]:
    """Return the seconds until the answer to each of several puts, one after the other."""
    seconds = []
    for item in range(number):
        started_at = time.monotonic()
        response = await victim.put(put(prefix, item, "0 3 * * *"))
        seconds.append(time.monotonic() - started_at)
        assert response.ok
        await asyncio.sleep(PUT_INTERVAL)
    return seconds


def put(prefix: str, number: int, cron: str) -> dict[str, Any]:
    return {"key": f"{prefix}-{number}", "when": {"cron": cron}, "target": TARGET}
