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
from tests.acceptance.record import Call
from tests.acceptance.schedule_load import MANY, WAVE, Crowd, Wave
from tests.acceptance.stack import run_id, until

from harebell.contract.amqp_names import DELAY
from harebell.messaging.topology.delay_queues import DELAY_TTLS_MS, delay_queue_key

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

log = logging.getLogger(__name__)

GROWTH = 50_000_000  # bytes
THREADS = 8  # that a pool may have started meanwhile
TALLER = 3  # times the blocks: an index over more rows has more levels
LATE = 10.0  # seconds; the machine may be busy
PATIENCE = 120.0  # seconds

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
def seen(crowd: Crowd) -> Seen:
    return asyncio.run(watch(crowd))


async def watch(crowd: Crowd) -> Seen:
    async with crowd.tenant() as tenant, copies(tenant.stack.amqp_url) as tickets:
        wave = await crowd.wave(tenant, MANY)
        before = await tenant.ledger.fetchval(_SCANS)
        messages = await until(crowd.in_tiers, what="the broker's numbers")
        wanted = run_ids(wave)

        async def have_run() -> list[Call] | None:
            calls = [call for call in crowd.target.calls("crowd") if call.run_id in wanted]
            return calls if len(calls) >= WAVE and all(call.ok for call in calls) else None

        calls = await until(have_run, within=PATIENCE, what="the wave's calls")
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
async def test_a_million_timetables_are_stored_and_no_two_are_alike(crowd: Crowd) -> None:
    async with crowd.tenant() as tenant:
        row = await tenant.ledger.fetchrow(_TIMETABLES)

    assert row is not None
    assert row["schedules"] >= MANY
    assert row["timetables"] == row["schedules"]


@pytest.mark.requirement("S11")
async def test_stored_schedules_are_due_when_their_timetables_say(crowd: Crowd) -> None:
    """A copied row is as good as a put one."""
    async with crowd.tenant() as tenant:
        for number in (10, 11, 12):  # a calendar, an instant, an interval
            key = f"bulk-{number}"
            stored = await tenant.harebell.schedule(key=key)
            told = await tenant.harebell.preview(key=key, count=1)
            assert told["instants"][0]["at"] == stored["next_at"]


@pytest.mark.requirement("S11", "S122")
def test_those_that_are_due_among_a_million_run_once_each_and_on_time(seen: Seen) -> None:
    assert Counter(call.run_id for call in seen.calls) == Counter(run_ids(seen.wave))
    assert min(call.late for call in seen.calls) >= 0
    assert max(call.late for call in seen.calls) < LATE


@pytest.mark.requirement("S11", "S46")
def test_a_ticker_takes_no_memory_and_no_thread_for_what_is_stored(
    crowd: Crowd, seen: Seen
) -> None:
    assert crowd.few is not None
    few, many = crowd.few.ticker, seen.wave.ticker
    log.info("with few %s, with many %s", few, many)

    assert many.memory - few.memory < GROWTH
    assert many.threads <= few.threads + THREADS


@pytest.mark.requirement("S36")
def test_the_broker_holds_what_is_due_within_the_horizon_and_nothing_else(seen: Seen) -> None:
    told = {
        run_id(each["schedule_id"], datetime.fromisoformat(each["scheduled_for"]))
        for each in seen.tickets
    }
    log.info("%d tickets in %d messages", len(seen.tickets), sum(seen.messages.values()))

    assert told == run_ids(seen.wave)
    assert 0 < sum(seen.messages.values()) <= WAVE


@pytest.mark.requirement("S41")
def test_no_service_reads_a_table_of_schedules_from_end_to_end(seen: Seen) -> None:
    assert seen.scans == 0


@pytest.mark.requirement("S122")
def test_staging_reads_as_much_as_is_due_and_not_as_is_stored(crowd: Crowd, seen: Seen) -> None:
    assert crowd.few is not None
    log.info("blocks: with few %d, with many %d", crowd.few.blocks, seen.wave.blocks)

    assert seen.wave.blocks <= crowd.few.blocks * TALLER
