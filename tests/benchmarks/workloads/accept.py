"""Schedules that are sent in: how many a second are checked, stored and acknowledged."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any, Final

from tests.acceptance.stack import Tenant, time_in
from tests.benchmarks.figures import Report
from tests.benchmarks.rig import NEVER, TASK, Rig, Scale, Wave, late

ACCEPTED: Final = 20_000  # schedules
IMMEDIATE: Final = 5_000
PORTION: Final = 500  # schedules of one message
AT_ONCE: Final = 8  # messages that wait for their answers


async def accept(rig: Rig, report: Report, scale: Scale) -> None:
    """Far from due, in messages of 500."""
    for _ in range(scale.times):
        async with rig.tenant() as tenant:
            before, began = rig.spent(), time.time()
            await put_all(tenant, ACCEPTED, {"at": time_in(NEVER).isoformat()})
            took, spent = time.time() - began, rig.spent() - before
            figures = {"per_s": round(ACCEPTED / took), "cpu_us_per_schedule": spent.per(ACCEPTED)}
            report.add("accept", n=ACCEPTED, **figures)


async def immediate(rig: Rig, report: Report, scale: Scale) -> None:
    """Due when they are accepted: the whole way from acceptance to the task's first line."""
    for _ in range(scale.times):
        async with rig.tenant() as tenant:
            before, began = rig.spent(), time.time()
            await put_all(tenant, IMMEDIATE, {"now": True})
            moment = time_in(0)
            wave = Wave(tenant, IMMEDIATE, moment, moment)
            took = await rig.drained(wave) - began
            spent = rig.spent() - before
            report.add(
                "immediate",
                n=IMMEDIATE,
                runs_per_s=round(IMMEDIATE / took),
                late_ms=late(await rig.started(IMMEDIATE)),
                cpu_us_per_run=spent.per(IMMEDIATE),
                **await rig.on_record(wave),
            )


async def put_all(tenant: Tenant, number: int, when: dict[str, Any]) -> None:
    free = asyncio.Semaphore(AT_ONCE)

    async def put(portion: list[dict[str, Any]]) -> None:
        async with free:
            responses = await tenant.harebell.put_many(portion)
        assert all(response.ok for response in responses)

    await asyncio.gather(*map(put, portions(number, when)))


def portions(number: int, when: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, number, PORTION):
        several = range(start, min(start + PORTION, number))
        yield [{"key": f"sent-{each}", "when": when, "target": TASK} for each in several]
