"""What 10,000 dead letters cost the desk: kept, grouped, listed, replayed. One JSON line.

Run as `.venv/bin/python -m tests.benchmarks.desk`, on private servers; it takes about a minute.
Runs are no further than staged: as an executor would end them, a statement does.
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

LETTERS: Final = 10_000
BUNDLE: Final = 100  # letters of one message
FAILURES: Final = 50  # different ones
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
_END: Final = "UPDATE runs SET state = 'succeeded', finished_at = now() WHERE state = 'staged'"


def dead_letters() -> list[DeadRun]:
    key = [RunKey(START + timedelta(seconds=n), uuid5(SCHEDULE, "acme")) for n in range(LETTERS)]
    failures = ("refused " + chr(97 + n % FAILURES % 26) * (1 + n % FAILURES // 26)
                for n in range(LETTERS))  # fmt: skip
    return [
        dead_run(each).model_copy(update={"error": error})
        for each, error in zip(key, failures, strict=True)
    ]


async def measure(url: str, database_url: str) -> dict[str, float]:
    def settings(role: str) -> dict[str, str]:
        return {"HAREBELL_AMQP_URL": url, "HAREBELL_DATABASE_URL": as_role(database_url, role)}

    database = await asyncpg.connect(database_url)
    stop = asyncio.Event()
    async with await aio_pika.connect(url) as connection, asyncio.TaskGroup() as tasks:
        await declare(connection, SYSTEM)
        tasks.create_task(intake.serve(IntakeSettings.load(settings("intake")), stop))
        as_inspector = DlqInspectorSettings.load(settings("dlq_inspector"))
        tasks.create_task(inspector.serve(as_inspector, stop))
        async with Client.connect(url, tenant="acme", timeout=60) as acme:
            took = {
                "kept_s": await kept(connection, database),
                "groups_s": await listed(acme.failure_groups(), FAILURES),
                "listed_s": await listed(acme.dead_letters(), LETTERS),
                **await replayed(acme, database),
            }
        stop.set()
    await database.close()
    return took


async def kept(connection: AbstractConnection, database: asyncpg.Connection) -> float:
    """From the first message to the last row; the runs are there before."""
    dead = dead_letters()
    work = orjson.dumps({"tenant": "acme", "key": "report", "target": TARGET}).decode()
    await database.execute(_VERSION, dead[0].schedule_id, work)
    await database.execute(_RUNS, dead[0].schedule_id, [each.scheduled_for for each in dead])
    channel = await connection.channel()
    exchange = await channel.get_exchange(amqp_names.DEAD, ensure=False)
    began = perf_counter()
    for start in range(0, LETTERS, BUNDLE):
        body = encode_all(dead[start : start + BUNDLE])
        message = aio_pika.Message(body, type=amqp_names.message_type("run.dead"))
        await exchange.publish(message, "run.acme")
    while await database.fetchval("SELECT count(*) FROM dead_letters") < LETTERS:
        continue
    return perf_counter() - began


async def listed(rows: AsyncIterator[object], number: int) -> float:
    began = perf_counter()
    assert len([row async for row in rows]) == number
    return perf_counter() - began


async def replayed(acme: Client, database: asyncpg.Connection) -> dict[str, float]:
    began = perf_counter()
    response = await acme.start_replay_job(select={"all": True}, request_id="all")
    assert response.id is not None
    frozen = perf_counter() - began
    while (job := await acme.replay_job(response.id)).state == "running":
        await database.execute(_END)
    assert (job.state, job.succeeded) == ("done", LETTERS)
    return {"frozen_s": frozen, "replayed_s": perf_counter() - began}


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Servers.open(Path(folder)) as servers:
        database_url = await servers.make_database()
        with servers.virtual_host() as url:
            took = await measure(url, database_url)
    figures = {name: round(seconds, 2) for name, seconds in took.items()}
    sys.stdout.write(orjson.dumps({"letters": LETTERS, **figures}).decode() + "\n")


if __name__ == "__main__":
    asyncio.run(main())
