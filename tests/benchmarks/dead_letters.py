"""The cost of 10,000 dead letters: storage, groups, lists and a replay job, as one JSON line.

The command `.venv/bin/python -m tests.benchmarks.dead_letters` uses private servers.
The command takes about a minute.
No executor runs: a statement completes the staged runs.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import Final
from uuid import uuid5

import aio_pika
import asyncpg
import orjson
from aio_pika.abc import AbstractConnection
from tests.integration.dlq_inspector.environment import SCHEDULE, TARGET, dead_run
from tests.rig.servers import Servers, as_role

from harebell.client import Client
from harebell.contract import amqp_names
from harebell.contract.dead_letter import DeadRun
from harebell.contract.ids import RunKey
from harebell.contract.json_codec import encode_all
from harebell.dlq_inspector import service as inspector
from harebell.intake import service as intake
from harebell.messaging.declare import declare
from harebell.messaging.topology.bus import SYSTEM
from harebell.runtime.settings import DlqInspectorSettings, IntakeSettings

DEAD_LETTERS: Final = 10_000
BATCH_SIZE: Final = 100  # dead letters in one message
FAILURES: Final = 50  # different failures
START: Final = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
_VERSION: Final = """
INSERT INTO schedule_versions
    (schedule_id, version, definition, run_spec, fingerprint, accepted_at, effective_at)
VALUES ($1, 1, '{}', $2, '', now(), now())
"""
_RUNS: Final = """
INSERT INTO runs (scheduled_for, schedule_id, tenant, version, seq, pool, lane, priority, state,
    due_at, attempt, finished_at)
SELECT at, $1, 'acme', 1, 7, 'default', 'normal', 5, 'dead', at, 2, now()
FROM unnest($2::timestamptz[]) AS at
"""
_COMPLETE: Final = "UPDATE runs SET state = 'succeeded', finished_at = now() WHERE state = 'staged'"


def dead_letters() -> list[DeadRun]:
    schedule_id = uuid5(SCHEDULE, "acme")
    keys = [RunKey(START + timedelta(seconds=n), schedule_id) for n in range(DEAD_LETTERS)]
    errors = [error_of(n % FAILURES) for n in range(DEAD_LETTERS)]
    return [
        dead_run(key).model_copy(update={"error": error})
        for key, error in zip(keys, errors, strict=True)
    ]


def error_of(failure: int) -> str:
    """Return a text that differs for each failure, also after the normalisation of digits."""
    return "refused " + chr(ord("a") + failure % 26) * (1 + failure // 26)


async def measure(url: str, database_url: str) -> dict[str, float]:
    def settings(role: str) -> dict[str, str]:
        return {
            "HAREBELL_AMQP_URL": url,
            "HAREBELL_DATABASE_URL": as_role(database_url, role),
            "HAREBELL_TOPOLOGY_MODE": "declare",
        }

    database = await asyncpg.connect(database_url)
    stop = asyncio.Event()
    async with await aio_pika.connect(url) as connection, asyncio.TaskGroup() as tasks:
        await declare(connection, SYSTEM)
        tasks.create_task(intake.serve(IntakeSettings.load(settings("intake")), stop))
        as_inspector = DlqInspectorSettings.load(settings("dlq_inspector"))
        tasks.create_task(inspector.serve(as_inspector, stop))
        async with Client.connect(url, tenant="acme", timeout=60) as acme:
            figures = {
                "stored_s": await measure_storage(connection, database),
                "groups_s": await measure_list(acme.failure_groups(), FAILURES),
                "listed_s": await measure_list(acme.dead_letters(), DEAD_LETTERS),
                **await measure_replay(acme, database),
            }
        stop.set()
    await database.close()
    return figures


async def measure_storage(connection: AbstractConnection, database: asyncpg.Connection) -> float:
    """Return the seconds from the first message to the last row."""
    dead = dead_letters()
    work = orjson.dumps({"tenant": "acme", "key": "report", "target": TARGET}).decode()
    await database.execute(_VERSION, dead[0].schedule_id, work)
    await database.execute(_RUNS, dead[0].schedule_id, [each.scheduled_for for each in dead])
    channel = await connection.channel()
    exchange = await channel.get_exchange(amqp_names.DEAD, ensure=False)
    started_at = perf_counter()
    for start in range(0, DEAD_LETTERS, BATCH_SIZE):
        body = encode_all(dead[start : start + BATCH_SIZE])
        message = aio_pika.Message(body, type=amqp_names.message_type("run.dead"))
        await exchange.publish(message, "run.acme")
    while await database.fetchval("SELECT count(*) FROM dead_letters") < DEAD_LETTERS:
        continue
    return perf_counter() - started_at


async def measure_list(rows: AsyncIterator[object], number: int) -> float:
    started_at = perf_counter()
    assert len([row async for row in rows]) == number
    return perf_counter() - started_at


async def measure_replay(acme: Client, database: asyncpg.Connection) -> dict[str, float]:
    started_at = perf_counter()
    response = await acme.start_replay_job(select={"all": True}, request_id="all")
    assert response.id is not None
    selected_in = perf_counter() - started_at
    while (replay_job := await acme.replay_job(response.id)).state == "running":
        await database.execute(_COMPLETE)
    assert (replay_job.state, replay_job.succeeded) == ("done", DEAD_LETTERS)
    return {"selected_s": selected_in, "replayed_s": perf_counter() - started_at}


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Servers.open(Path(folder)) as servers:
        database_url = await servers.make_database()
        with servers.virtual_host() as url:
            figures = await measure(url, database_url)
    figures = {name: round(seconds, 2) for name, seconds in figures.items()}
    sys.stdout.write(orjson.dumps({"dead_letters": DEAD_LETTERS, **figures}).decode() + "\n")


if __name__ == "__main__":
    asyncio.run(main())
