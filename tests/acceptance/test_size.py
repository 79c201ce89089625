"""A million schedules, each with a timetable of its own, and the few of them that are due."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import aio_pika
import orjson
import pytest
from aio_pika.abc import AbstractIncomingMessage
from tests.acceptance.recording_target import Call
from tests.acceptance.schedule_load import MANY, WAVE_SIZE, ScheduleLoad, Wave
from tests.acceptance.stack import run_id, until

from harebell.contract.amqp_names import DELAY
from harebell.messaging.topology.delay_queues import DELAY_TTLS_MS, delay_queue_key

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

log = logging.getLogger(__name__)

GROWTH = 50_000_000  # bytes
THREADS = 8  # that a pool may have started meanwhile
TALLER = 3  # times the blocks: an index over more rows has more levels
LATE = 10.0  # seconds; the machine may be busy
WAIT_TIMEOUT = 120.0  # seconds

_SCANS = """
SELECT sum(seq_scan)::int FROM pg_stat_user_tables
WHERE relname IN ('schedules', 'schedule_versions', 'schedule_state')
"""
_TIMETABLES = """
SELECT count(*) AS schedules, count(DISTINCT definition->>'when') AS timetables
FROM schedule_versions WHERE definition->>'key' LIKE 'bulk-%'
"""


@dataclass(frozen=True)
class Seen:
    """Of a wave among a million."""

    wave: Wave
    tickets: list[dict[str, Any]]  # all that were put into a tier
    messages: dict[str, int]  # in the broker by tier, when all was staged
    calls: list[Call]
    scans: int  # of the tables of schedules, from end to end


@pytest.fixture(scope="module")
def seen(schedule_load: ScheduleLoad) -> Seen:
    return asyncio.run(watch(schedule_load))


async def watch(schedule_load: ScheduleLoad) -> Seen:
    async with schedule_load.tenant() as tenant, copies(tenant.stack.amqp_url) as tickets:
        wave = await schedule_load.wave(tenant, MANY)
        before = await tenant.ledger.fetchval(_SCANS)
        messages = await until(schedule_load.delay_queue_depths, what="the broker's numbers")
        wanted = run_ids(wave)

        async def have_run() -> list[Call] | None:
            calls = [call for call in schedule_load.target.calls("crowd") if call.run_id in wanted]
            return calls if len(calls) >= WAVE_SIZE and all(call.ok for call in calls) else None

        calls = await until(have_run, within=WAIT_TIMEOUT, what="the wave's calls")
        scans = await tenant.ledger.fetchval(_SCANS) - before
    assert calls is not None
    assert messages is not None
    return Seen(wave, tickets, messages, calls, scans)


@asynccontextmanager
async def copies(amqp_url: str) -> AsyncIterator[list[dict[str, Any]]]:
    """Every ticket that is put into a delay tier from now on."""
    tickets: list[dict[str, Any]] = []

    async def keep(message: AbstractIncomingMessage) -> None:
        tickets.extend(orjson.loads(message.body))

    async with await aio_pika.connect(amqp_url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        for tier in DELAY_TTLS_MS:
            await queue.bind(DELAY, delay_queue_key(tier))
        await queue.consume(keep, no_ack=True)
        yield tickets


def run_ids(wave: Wave) -> set[str]:
    return {run_id(str(schedule), due) for schedule, due in wave.due.items()}


@pytest.mark.requirement("S11")
async def test_a_million_timetables_are_stored_and_no_two_are_alike(schedule_load: ScheduleLoad) -> None:
    async with schedule_load.tenant() as tenant:
        row = await tenant.ledger.fetchrow(_TIMETABLES)

    assert row is not None
    assert row["schedules"] >= MANY
    assert row["timetables"] == row["schedules"]


@pytest.mark.requirement("S11")
async def test_stored_schedules_are_due_when_their_timetables_say(schedule_load: ScheduleLoad) -> None:
    """A copied row is as good as a put one."""
    async with schedule_load.tenant() as tenant:
        for number in (10, 11, 12):  # a calendar, an instant, an interval
            key = f"bulk-{number}"
            stored = await tenant.harebell.schedule(key=key)
            told = await tenant.harebell.preview(key=key, count=1)
            assert told.instants[0].at == stored.next_at


@pytest.mark.requirement("S11", "S122")
def test_those_that_are_due_among_a_million_run_once_each_and_on_time(seen: Seen) -> None:
    assert Counter(call.run_id for call in seen.calls) == Counter(run_ids(seen.wave))
    assert min(call.late for call in seen.calls) >= 0
    assert max(call.late for call in seen.calls) < LATE


@pytest.mark.requirement("S11", "S46")
def test_a_ticker_takes_no_memory_and_no_thread_for_what_is_stored(
    schedule_load: ScheduleLoad, seen: Seen
) -> None:
    assert schedule_load.initial_wave is not None
    initial_wave, many = schedule_load.initial_wave.ticker, seen.wave.ticker
    log.info("with few %s, with many %s", initial_wave, many)

    assert many.memory - initial_wave.memory < GROWTH
    assert many.threads <= initial_wave.threads + THREADS


@pytest.mark.requirement("S36")
def test_the_broker_holds_what_is_due_within_the_horizon_and_nothing_else(seen: Seen) -> None:
    told = {
        run_id(each["schedule_id"], datetime.fromisoformat(each["scheduled_for"]))
        for each in seen.tickets
    }
    log.info("%d tickets in %d messages", len(seen.tickets), sum(seen.messages.values()))

    assert told == run_ids(seen.wave)
    assert 0 < sum(seen.messages.values()) <= WAVE_SIZE


@pytest.mark.requirement("S41")
def test_no_service_reads_a_table_of_schedules_from_end_to_end(seen: Seen) -> None:
    assert seen.scans == 0


@pytest.mark.requirement("S122")
def test_staging_reads_as_much_as_is_due_and_not_as_is_stored(schedule_load: ScheduleLoad, seen: Seen) -> None:
    assert schedule_load.initial_wave is not None
    log.info("blocks: with few %d, with many %d", schedule_load.initial_wave.blocks, seen.wave.blocks)

    assert seen.wave.blocks <= schedule_load.initial_wave.blocks * TALLER
