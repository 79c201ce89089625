"""The hands of a test at the desk: they let runs die, write commands and read answers."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import aio_pika
import asyncpg
import orjson
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from aiormq.exceptions import ChannelNotFoundEntity
from pamqp.commands import Queue

from harebell.client import Client
from harebell.contract import amqp_names
from harebell.contract.accepted_commands import AcceptedCommand, AcceptedCommands
from harebell.contract.dead_letter import AttemptRecord, DeadRun
from harebell.contract.ids import RunKey, dead_run_id
from harebell.contract.json_codec import encode, encode_all
from harebell.dlq_inspector.service import serve
from harebell.messaging.topology.bus import DISPATCHER
from harebell.runtime.settings import DlqInspectorSettings, PoolBounds
from harebell.storage.engine import open_pool

SCHEDULE = UUID("5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11")
NINE = datetime.now(UTC).replace(hour=9, minute=0, second=0, microsecond=0)
TARGET = {"http": {"url": "https://acme.example/report"}}
PATIENCE = 20  # seconds

_SCHEDULED = """
INSERT INTO schedule_versions
    (schedule_id, version, definition, run_spec, fingerprint, accepted_at, effective_at)
VALUES ($1, 1, '{}', $2, '', now(), now()) ON CONFLICT DO NOTHING
"""
_DEAD = """
INSERT INTO runs (scheduled_for, schedule_id, tenant, version, seq, replay_number, pool, lane, priority,
    state, reason, due_at, expires_at, attempt, started_at, finished_at, outcome, stop_requested_at)
VALUES ($1, $2, $3, 1, 7, $4, 'default', 'normal', 5, 'dead', 'attempts_exhausted', $1, $1, 2,
    now(), now(), 'failed', now())
"""


@dataclass
class Office:
    """What a test does around the inspector.."""

    settings: DlqInspectorSettings
    database: asyncpg.Connection  # as the owner
    connection: AbstractConnection
    channel: AbstractChannel
    acme: Client
    answers: "asyncio.Queue[AbstractIncomingMessage]"
    reply_to: str

    def environment(self) -> dict[str, str]:
        """Of an inspector in a process of its own."""
        return {
            "HAREBELL_AMQP_URL": self.settings.amqp_url.get_secret_value(),
            "HAREBELL_DATABASE_URL": self.settings.database_url.get_secret_value(),
            "HAREBELL_INSTANCE_ID": "inspector-2",
            "PYTHONPATH": os.pathsep.join(sys.path),  # of this tree, installed or not
        }

    @asynccontextmanager
    async def inspector(self) -> AsyncIterator[asyncio.Event]:
        stop = asyncio.Event()
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as tasks:
            tasks.create_task(serve(self.settings, stop))
            yield stop
            stop.set()

    def pool(self) -> AbstractAsyncContextManager[asyncpg.Pool]:
        """As the inspector opens it."""
        url = self.settings.database_url.get_secret_value()
        return open_pool(url, name="desk", bounds=PoolBounds())

    async def run_dies(
        self, number: int = 0, *, tenant: str = "acme", replay_number: int = 0, **facts: Any
    ) -> DeadRun:
        """A run in the ledger, dead, and its letter on the way to the desk; `facts` are of it."""
        key = RunKey(NINE + timedelta(seconds=number), uuid5(SCHEDULE, tenant))
        work = orjson.dumps({"tenant": tenant, "key": "report", "target": TARGET}).decode()
        await self.database.execute(_SCHEDULED, key.schedule_id, work)
        if replay_number == 0:
            await self.database.execute(
                _DEAD, key.scheduled_for, key.schedule_id, tenant, replay_number
            )
        else:
            await self.run_becomes("dead", key)
        dead = dead_run(key, tenant=tenant, replay_number=replay_number)
        dead = dead.model_copy(
            update={name: fact for name, fact in facts.items() if fact is not None}
        )
        await self.publish(amqp_names.DEAD, f"run.{tenant}", encode_all([dead]), "run.dead")
        return dead

    async def run_becomes(self, state: str, key: RunKey) -> None:
        change = "UPDATE runs SET state = $3, seq = seq + 1 WHERE (scheduled_for, schedule_id) = "
        await self.database.execute(change + "($1, $2)", key.scheduled_for, key.schedule_id, state)

    async def run(self, dead: DeadRun) -> asyncpg.Record:
        find = "SELECT * FROM runs WHERE scheduled_for = $1 AND schedule_id = $2"
        return await self.database.fetchrow(find, dead.scheduled_for, dead.schedule_id)

    async def publish(
        self, exchange: str, key: str, body: bytes, verb: str | None, **properties: Any
    ) -> None:
        type_ = None if verb is None else amqp_names.message_type(verb)
        message = aio_pika.Message(body, type=type_, **properties)
        target = await self.channel.get_exchange(exchange, ensure=False)
        await target.publish(message, key)

    async def command(self, verb: str, *ids: UUID, tenant: str = "acme") -> None:
        """As intake passes it on."""
        body = {"ids": [str(id_) for id_ in ids], "note": "after the fix"}
        await self.change(verb, AcceptedCommand(index=0, body=body), tenant=tenant)

    async def change(
        self, verb: str, *items: AcceptedCommand, tenant: str = "acme", single: bool = True
    ) -> None:
        change = AcceptedCommands(
            tenant=tenant,
            verb=verb,
            actor="ann",
            accepted_at=NINE,
            reply_to=self.reply_to,
            correlation_id="c-1",
            single=single,
            items=list(items),
        )
        await self.publish(
            amqp_names.CHANGES, amqp_names.CHANGES_DLQ, encode(change), "accepted_commands"
        )

    async def answer(self) -> Any:
        async with asyncio.timeout(PATIENCE):
            message = await self.answers.get()
        assert message.correlation_id == "c-1"
        return orjson.loads(message.body)

    async def results(self) -> dict[UUID, str]:
        return {UUID(id_): status for id_, status in (await self.answer())["results"].items()}

    async def kept(self, number: int, harebell: Client | None = None) -> list[dict[str, Any]]:
        """All that is kept, once there is that much."""
        letters = (harebell or self.acme).dead_letters
        async with asyncio.timeout(PATIENCE):
            while len(rows := [row async for row in letters(state="all")]) < number:
                continue
        return rows

    async def tickets(self, number: int) -> list[dict[str, Any]]:
        """The next ones that come to the dispatcher."""
        queue = await self.channel.get_queue(DISPATCHER.name, ensure=False)
        found: list[dict[str, Any]] = []
        async with asyncio.timeout(PATIENCE):
            while len(found) < number:
                message = await queue.get(fail=False, no_ack=True)
                found += orjson.loads(message.body) if message is not None else []
        return found

    async def is_consumed(self, queue: str) -> None:
        """Returns when it is declared, bound, and has its consumer."""
        async with asyncio.timeout(PATIENCE):
            while (found := await self._look(queue)) is None or not found.consumer_count:
                continue

    async def is_empty(self, queue: str) -> None:
        """Returns when it is: all that came has been handed to a consumer."""
        async with asyncio.timeout(PATIENCE):
            while (found := await self._look(queue)) is None or found.message_count:
                continue

    async def _look(self, queue: str) -> Queue.DeclareOk | None:
        async with self.connection.channel() as channel:
            try:
                found = await channel.declare_queue(queue, passive=True)
            except ChannelNotFoundEntity:
                return None
            return found.declaration_result


def dead_run(key: RunKey, *, tenant: str = "acme", replay_number: int = 0) -> DeadRun:
    return DeadRun(
        run_id=str(key),
        tenant=tenant,
        schedule_id=key.schedule_id,
        scheduled_for=key.scheduled_for,
        key="report",
        version=1,
        replay_number=replay_number,
        reason="attempts_exhausted",
        error_code="http_503",
        error="503 Service Unavailable",
        dead_at=key.scheduled_for + timedelta(minutes=replay_number),
        target=TARGET,
        attempts=[
            AttemptRecord(replay_number=replay_number, number=n, finished_at=NINE, outcome="failed")
            for n in (1, 2)
        ],
    )


def dead_letter_id(dead: DeadRun) -> UUID:
    return dead_run_id(dead.run_id, dead.replay_number)
