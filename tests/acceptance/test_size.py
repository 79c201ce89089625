"""A million schedules with different times, of which a few are due."""

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
from tests.acceptance.stack import run_id
from tests.rig.polling import until

from harebell.contract.amqp_names import DELAY
from harebell.messaging.topology.delay_queues import DELAY_TTLS_MS, delay_queue_key

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

log = logging.getLogger(__name__)

MAX_GROWTH = 50_000_000  # bytes
MAX_NEW_THREADS = 8  # that a thread pool may start during the test
MAX_FACTOR = 3  # between the read blocks, because an index over more rows has more levels
MAX_LATENESS = 10.0  # seconds, on a busy machine
LOAD_TIMEOUT = 120.0  # seconds

_SCANS = """
SELECT sum(seq_scan)::int FROM pg_stat_user_tables
WHERE relname IN ('schedules', 'schedule_versions', 'schedule_state')
"""
_DIFFERENT_TIMES = """
SELECT count(*) AS schedules, count(DISTINCT definition->>'when') AS different
FROM schedule_versions WHERE definition->>'key' LIKE 'bulk-%'
"""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The measurements of a wave in a stack with a million schedules."""

    wave: Wave
    tickets: list[dict[str, Any]]  # of every delay queue
    messages: dict[str, int]  # in the broker by delay queue, when every run was staged
    calls: list[Call]
    scans: int  # sequential scans of the tables of schedules


@pytest.fixture(scope="module")
def observation(schedule_load: ScheduleLoad) -> Observation:
    return asyncio.run(observe(schedule_load))


async def observe(schedule_load: ScheduleLoad) -> Observation:
    async with (
        schedule_load.tenant() as tenant,
        tickets_in_delay_queues(tenant.stack.amqp_url) as tickets,
    ):
        wave = await schedule_load.wave(tenant, MANY)
        before = await tenant.ledger.fetchval(_SCANS)
        messages = await until(
            schedule_load.delay_queue_depths, what="the message counts of the broker"
        )
        expected = run_ids(wave)

        async def have_run() -> list[Call] | None:
            calls = [
                call
                for call in schedule_load.target.calls("schedule-load")
                if call.run_id in expected
            ]
            return calls if len(calls) >= WAVE_SIZE and all(call.ok for call in calls) else None

        calls = await until(have_run, within=LOAD_TIMEOUT, what="the wave's calls")
        scans = await tenant.ledger.fetchval(_SCANS) - before
    assert calls is not None
    assert messages is not None
    return Observation(wave=wave, tickets=tickets, messages=messages, calls=calls, scans=scans)


@asynccontextmanager
async def tickets_in_delay_queues(amqp_url: str) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield a list that receives each later ticket of every delay queue."""
    tickets: list[dict[str, Any]] = []

    async def collect(message: AbstractIncomingMessage) -> None:
        tickets.extend(orjson.loads(message.body))

    async with await aio_pika.connect(amqp_url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        for ttl_ms in DELAY_TTLS_MS:
            await queue.bind(DELAY, delay_queue_key(ttl_ms))
        await queue.consume(collect, no_ack=True)
        yield tickets


def run_ids(wave: Wave) -> set[str]:
    return {run_id(str(schedule), due) for schedule, due in wave.due.items()}


@pytest.mark.requirement("S11")
async def test_million_schedules_with_different_times_are_stored(
    schedule_load: ScheduleLoad,
) -> None:
    async with schedule_load.tenant() as tenant:
        row = await tenant.ledger.fetchrow(_DIFFERENT_TIMES)

    assert row is not None
    assert row["schedules"] >= MANY
    assert row["different"] == row["schedules"]


@pytest.mark.requirement("S11")
async def test_stored_schedule_is_due_at_the_time_of_its_recurrence(
    schedule_load: ScheduleLoad,
) -> None:
    """Compare the copied rows with the recurrence that Harebell computes."""
    async with schedule_load.tenant() as tenant:
        for number in (10, 11, 12):  # a cron expression, a time and an interval
            key = f"bulk-{number}"
            stored = await tenant.harebell.schedule(key=key)
            preview = await tenant.harebell.preview(key=key, count=1)
            assert preview.instants[0].at == stored.next_at


@pytest.mark.measures
@pytest.mark.requirement("S11", "S122")
def test_due_schedules_among_a_million_run_once_and_on_time(
    observation: Observation,
) -> None:
    assert Counter(call.run_id for call in observation.calls) == Counter(run_ids(observation.wave))
    assert min(call.late for call in observation.calls) >= 0
    assert max(call.late for call in observation.calls) < MAX_LATENESS


@pytest.mark.measures
@pytest.mark.requirement("S11", "S46")
def test_ticker_needs_no_memory_and_no_thread_for_stored_schedules(
    schedule_load: ScheduleLoad, observation: Observation
) -> None:
    assert schedule_load.initial_wave is not None
    initial_wave, after = schedule_load.initial_wave.ticker, observation.wave.ticker
    log.info("ticker: %s with few schedules, %s with many", initial_wave, after)

    assert after.memory - initial_wave.memory < MAX_GROWTH
    assert after.threads <= initial_wave.threads + MAX_NEW_THREADS


@pytest.mark.requirement("S36")
def test_broker_contains_only_the_runs_within_the_horizon(
    observation: Observation,
) -> None:
    run_ids_of_tickets = {
        run_id(each["schedule_id"], datetime.fromisoformat(each["scheduled_for"]))
        for each in observation.tickets
    }
    log.info(
        "%d tickets in %d messages", len(observation.tickets), sum(observation.messages.values())
    )

    assert run_ids_of_tickets == run_ids(observation.wave)
    assert 0 < sum(observation.messages.values()) <= WAVE_SIZE


@pytest.mark.requirement("S41")
def test_no_service_scans_a_table_of_schedules(observation: Observation) -> None:
    assert observation.scans == 0


@pytest.mark.requirement("S122")
def test_staging_reads_only_the_due_schedules(
    schedule_load: ScheduleLoad, observation: Observation
) -> None:
    assert schedule_load.initial_wave is not None
    log.info(
        "blocks: %d with few schedules, %d with many",
        schedule_load.initial_wave.blocks,
        observation.wave.blocks,
    )

    assert observation.wave.blocks <= schedule_load.initial_wave.blocks * MAX_FACTOR
