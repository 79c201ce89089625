"""Schedules that clients send: the rate of checked, stored and acknowledged schedules."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any, Final

from tests.acceptance.stack import Tenant, time_in
from tests.benchmarks.database_work import DatabaseWork
from tests.benchmarks.figures import Report, lateness
from tests.benchmarks.rig import MODEL_DUE, START_TASK, Rig, Scale, Wave, start_lateness
from tests.benchmarks.sender import Sender

ACCEPTED: Final = 20_000  # schedules
IMMEDIATE: Final = 5_000
WARM_UP: Final = 500  # runs before the measurement
ALONE: Final = 100  # runs, one after the other
FULL_ALONE: Final = 1_000
STATISTICS_DELAY: Final = 1.5  # seconds until the database has counted the last statement
BATCH_SIZE: Final = 500  # schedules in one message
MAX_CONCURRENT_MESSAGES: Final = 8  # messages without a response


async def accept(rig: Rig, report: Report, scale: Scale) -> None:
    """Measure schedules that are due in the far future, in messages of 500."""
    for _ in range(scale.times):
        async with rig.tenant() as tenant:
            before, started_at = rig.spent(), time.time()
            await put_all(tenant, ACCEPTED, {"at": time_in(MODEL_DUE).isoformat()})
            duration, spent = time.time() - started_at, rig.spent() - before
            figures = {
                "per_s": round(ACCEPTED / duration),
                "cpu_us_per_schedule": spent.per(ACCEPTED),
            }
            report.add("accept", n=ACCEPTED, **figures)


async def immediate(rig: Rig, report: Report, scale: Scale) -> None:
    """Measure immediate schedules in single messages, from the first publish to the last start.

    The CPU time excludes the publisher, which is a process of its own.
    """
    for _ in range(scale.times):
        async with rig.tenant() as tenant:
            with Sender.open(rig.stack.amqp_url, tenant.name) as sender:
                await sender.send(WARM_UP, "warm-up")
                await rig.started(WARM_UP)
                before, work = rig.spent(), await DatabaseWork.read(tenant.ledger)
                began, sent = await sender.send(IMMEDIATE, "sent")
                starts = await rig.started(IMMEDIATE)
                now = time_in(0)
                wave = Wave(tenant=tenant, number=IMMEDIATE + WARM_UP, first=now, last=now)
                await rig.drained(wave)
                spent = rig.spent() - before
                await asyncio.sleep(STATISTICS_DELAY)
                worked = await DatabaseWork.read(tenant.ledger)
            report.add(
                "immediate",
                n=IMMEDIATE,
                runs_per_s=round(IMMEDIATE / (starts[-1][1] - began)),
                sent_per_s=round(IMMEDIATE / (sent - began)),
                late_ms=start_lateness(starts),
                cpu_us_per_run=spent.per(IMMEDIATE),
                per_run=worked.since(work, IMMEDIATE),
                **await rig.on_record(wave),
            )


async def immediate_bulk(rig: Rig, report: Report, scale: Scale) -> None:
    """Measure immediate schedules in arrays of 500, from the first publish to the last start."""
    for _ in range(scale.times):
        async with rig.tenant() as tenant:
            before, began = rig.spent(), time.time()
            await put_all(tenant, IMMEDIATE, {"now": True})
            starts = await rig.started(IMMEDIATE)
            now = time_in(0)
            wave = Wave(tenant=tenant, number=IMMEDIATE, first=now, last=now)
            await rig.drained(wave)
            spent = rig.spent() - before
            report.add(
                "immediate-bulk",
                n=IMMEDIATE,
                runs_per_s=round(IMMEDIATE / (starts[-1][1] - began)),
                late_ms=start_lateness(starts),
                cpu_us_per_run=spent.per(IMMEDIATE),
                **await rig.on_record(wave),
            )


async def now_alone(rig: Rig, report: Report, scale: Scale) -> None:
    """Measure the time from the publish of one `now` to its start, while nothing else runs."""
    number = FULL_ALONE if scale.full else ALONE
    for _ in range(scale.times):
        async with rig.tenant() as tenant:
            seconds = []
            with Sender.open(rig.stack.amqp_url, tenant.name) as sender:
                await sender.send(WARM_UP, "warm-up")
                await rig.started(WARM_UP)
                for index in range(number):
                    began, _ = await sender.send(1, f"alone-{index}")
                    ((_, started),) = await rig.started(1)
                    seconds.append(started - began)
            report.add("now-alone", n=number, publish_to_start_ms=lateness(seconds))


async def put_all(tenant: Tenant, number: int, when: dict[str, Any]) -> None:
    free = asyncio.Semaphore(MAX_CONCURRENT_MESSAGES)

    async def put(batch: list[dict[str, Any]]) -> None:
        async with free:
            responses = await tenant.harebell.put_many(batch)
        assert all(response.ok for response in responses)

    await asyncio.gather(*map(put, batches(number, when)))


def batches(number: int, when: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, number, BATCH_SIZE):
        numbers = range(start, min(start + BATCH_SIZE, number))
        yield [{"key": f"sent-{each}", "when": when, "target": START_TASK} for each in numbers]
