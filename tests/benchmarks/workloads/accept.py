"""Schedules that clients send: the rate of checked, stored and acknowledged schedules."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any, Final

from tests.acceptance.stack import Tenant, time_in
from tests.benchmarks.figures import Report
from tests.benchmarks.rig import MODEL_DUE, START_TASK, Rig, Scale, Wave, start_lateness

ACCEPTED: Final = 20_000  # schedules
IMMEDIATE: Final = 5_000
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
    """Measure immediate schedules, from the acceptance to the start of the task."""
    for _ in range(scale.times):
        async with rig.tenant() as tenant:
            before, started_at = rig.spent(), time.time()
            await put_all(tenant, IMMEDIATE, {"now": True})
            now = time_in(0)
            wave = Wave(tenant=tenant, number=IMMEDIATE, first=now, last=now)
            duration = await rig.drained(wave) - started_at
            spent = rig.spent() - before
            report.add(
                "immediate",
                n=IMMEDIATE,
                runs_per_s=round(IMMEDIATE / duration),
                late_ms=start_lateness(await rig.started(IMMEDIATE)),
                cpu_us_per_run=spent.per(IMMEDIATE),
                **await rig.on_record(wave),
            )


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
