"""Delayed messages: the rate at which waiting ones are accepted, and how exactly they arrive."""

import asyncio
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import aio_pika
from tests.acceptance.delayed_rig import DelayedRig
from tests.acceptance.stack import Tenant
from tests.benchmarks.figures import Report, lateness
from tests.benchmarks.machine import without_collector
from tests.benchmarks.rig import Rig, Scale
from tests.benchmarks.workloads.tenants import restart
from tests.rig.polling import until

from harebell.contract.amqp_names import SCHEDULED_FOR
from harebell.dev.plan import ServiceKind, name_of
from harebell.intake.delayed.message import key_of
from harebell.messaging.declare import declare
from harebell.messaging.topology.bus import delayed_topology
from harebell.messaging.topology.declarations import ExchangeKind

EXCHANGE: Final = "bench.orders"
SETTING: Final = "HAREBELL_DELAYED_EXCHANGES"
WAITING, FULL_WAITING = 20_000, 1_000_000  # messages that wait for a year
YEAR_MS: Final = 365 * 86_400_000
MAX_UNCONFIRMED: Final = 1_000  # messages of the publisher
RATE: Final = 1_000  # messages a second
SECONDS: Final = 8
DELAY: Final = 12.0  # seconds; after the last publish, so that nothing else uses this process
TIMEOUT: Final = 1_200.0  # seconds


@dataclass(frozen=True, slots=True)
class DelayErrors:
    """The seconds by which messages arrive too late, and the part of them before the due time.

    The delay begins when intake receives a message, and the sender counts from its publish.
    """

    before_due: list[float]
    total: list[float]


async def delayed(rig: Rig, report: Report, scale: Scale) -> None:
    """Measure the acceptance of waiting messages, and then messages that arrive beside them."""
    topology = delayed_topology({EXCHANGE: ExchangeKind.TOPIC})
    async with await aio_pika.connect(rig.stack.amqp_url) as connection:
        await declare(connection, topology)
    waiting = FULL_WAITING if scale.full else WAITING
    try:
        for _ in range(scale.times):
            async with rig.tenant() as tenant:
                restart(rig, **{SETTING: f"{EXCHANGE}={tenant.name}"})
                async with DelayedRig.open(rig.stack.amqp_url, EXCHANGE) as messages:
                    accepted = await accept_waiting(rig, tenant, messages, number=waiting)
                    report.add("delayed waiting", n=waiting, **accepted)
                    before = rig.spent()
                    with without_collector():  # which would stop this process for milliseconds
                        errors = await deliver(messages)
                    number = len(errors.total)
                    report.add(
                        "delayed",
                        n=number,
                        waiting=waiting,
                        late_ms=lateness(errors.total),
                        late_before_due_ms=lateness(errors.before_due),
                        cpu_us_per_run=(rig.spent() - before).per(number),
                    )
    finally:
        rig.settings.pop(SETTING, None)
        restart(rig)


async def accept_waiting(
    rig: Rig, tenant: Tenant, messages: DelayedRig, *, number: int
) -> dict[str, Any]:
    """Return the figures of intake for messages that waited for its start in the queue.

    The publisher is no part of the measurement, and neither is the start of intake.
    """
    rig.stop(name_of(ServiceKind.INTAKE, 1))
    free = asyncio.Semaphore(MAX_UNCONFIRMED)

    async def publish(index: int) -> None:
        async with free:
            await messages.publish(b"{}", YEAR_MS, message_id=f"waiting-{index}")

    for start in range(0, number, MAX_UNCONFIRMED):
        indexes = range(start, min(start + MAX_UNCONFIRMED, number))
        await asyncio.gather(*map(publish, indexes))
    rig.start_one(ServiceKind.INTAKE, 1)
    await until_stored(tenant, 0)
    first: int = await tenant.ledger.fetchval(
        "SELECT count(*) FROM schedules WHERE tenant = $1", tenant.name
    )
    began, before = time.monotonic(), rig.spent()
    await until_stored(tenant, number - 1)
    spent = rig.spent() - before
    return {
        "per_s": round((number - first) / (time.monotonic() - began)),
        "cpu_us_per_schedule": spent.per(number - first),
    }


async def until_stored(tenant: Tenant, index: int) -> None:
    """Wait for the schedule of a waiting message, and so for those of all messages before it."""
    key = key_of(EXCHANGE, f"waiting-{index}")

    async def stored() -> bool:
        found: bool = await tenant.ledger.fetchval(
            "SELECT EXISTS (SELECT FROM schedules WHERE tenant = $1 AND key = $2)",
            tenant.name,
            key,
        )
        return found

    await until(stored, within=TIMEOUT, what=f"the schedule {key}")


async def deliver(messages: DelayedRig) -> DelayErrors:
    """Publish at `RATE`, and return the errors of the delays."""
    sent: dict[str, float] = {}
    publishing: set[asyncio.Task[None]] = set()

    async def publish(index: int) -> None:
        id_ = f"soon-{index}"
        sent[id_] = await messages.publish(b"{}", round(DELAY * 1000), message_id=id_)

    began = time.monotonic()
    for index in range(RATE * SECONDS):
        await asyncio.sleep(max(0.0, began + index / RATE - time.monotonic()))
        task = asyncio.create_task(publish(index))
        publishing.add(task)
        task.add_done_callback(publishing.discard)
    await asyncio.gather(*publishing)
    received = await messages.until_received(RATE * SECONDS)
    errors = DelayErrors([], [])
    for at, message in received:
        expected = sent[str(message.message_id)] + DELAY
        due = datetime.fromisoformat(str(message.headers[SCHEDULED_FOR])).timestamp()
        errors.before_due.append(due - expected)
        errors.total.append(at - expected)
    return errors
