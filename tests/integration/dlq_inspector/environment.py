"""The environment of a test: it creates dead runs, sends commands and receives responses."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
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
from tests.rig.command_line import end
from tests.rig.polling import until

from harebell.client import Client
from harebell.contract import amqp_names
from harebell.contract.accepted_commands import AcceptedCommand, AcceptedCommands
from harebell.contract.dead_letter import AttemptRecord, DeadRun
from harebell.contract.ids import RunKey, dead_run_id
from harebell.contract.json_codec import encode, encode_all
from harebell.contract.views import DeadLetterView
from harebell.dlq_inspector.service import serve
from harebell.messaging.topology.bus import DISPATCHER
from harebell.runtime.settings import DlqInspectorSettings, PoolBounds
from harebell.storage.engine import open_pool

SCHEDULE = UUID("5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11")
# Nine o'clock of yesterday: of today, it would lie in the future before nine.
NINE = (datetime.now(UTC) - timedelta(days=1)).replace(hour=9, minute=0, second=0, microsecond=0)
TARGET = {"http": {"url": "https://acme.example/report"}}
TIMEOUT = 20  # seconds

_INSERT_VERSION = """
INSERT INTO schedule_versions
    (schedule_id, version, definition, run_spec, fingerprint, accepted_at, effective_at)
VALUES ($1, 1, '{}', $2, '', now(), now()) ON CONFLICT DO NOTHING
"""
_INSERT_DEAD_RUN = """
INSERT INTO runs (scheduled_for, schedule_id, tenant, version, seq, replay_number, pool, lane,
    priority, state, reason, due_at, expires_at, attempt, started_at, finished_at, outcome,
    stop_requested_at)
VALUES ($1, $2, $3, 1, 7, 0, 'default', 'normal', 5, 'dead', 'attempts_exhausted', $1, $1, 2,
    now(), now(), 'failed', now())
"""
_SET_RUN_STATE = """
UPDATE runs SET state = $3, seq = seq + 1 WHERE scheduled_for = $1 AND schedule_id = $2
"""


@dataclass(kw_only=True)
class DlqEnvironment:
    """The servers, a client of the tenant `acme` and a queue for responses."""

    settings: DlqInspectorSettings
    database: asyncpg.Connection  # with the role of the owner
    connection: AbstractConnection
    channel: AbstractChannel
    acme: Client
    responses: "asyncio.Queue[AbstractIncomingMessage]"
    reply_to: str

    @asynccontextmanager
    async def process(self, **variables: str) -> AsyncIterator[Process]:
        """Run a dlq_inspector in a new process, which is killed at the end of the block."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "harebell.dlq_inspector",
            env={
                "HAREBELL_AMQP_URL": self.settings.amqp_url.get_secret_value(),
                "HAREBELL_DATABASE_URL": self.settings.database_url.get_secret_value(),
                "HAREBELL_INSTANCE_ID": "inspector-2",
                "HAREBELL_TESTING": "1",
                "HAREBELL_TOPOLOGY_MODE": "declare",
                "PYTHONPATH": os.pathsep.join(sys.path),  # this tree, even if it is not installed
                **variables,
            },
        )
        try:
            yield process
        finally:
            await end(process)

    async def run_until_killed(self, failpoint: str) -> None:
        """Run a dlq_inspector in a new process until it kills itself at the failpoint."""
        async with self.process(HAREBELL_FAILPOINT=f"{failpoint}:kill") as process:
            async with asyncio.timeout(TIMEOUT):
                assert await process.wait() == -signal.SIGKILL

    @asynccontextmanager
    async def running_inspector(self) -> AsyncIterator[asyncio.Event]:
        """Run a dlq_inspector in this process, and yield the event that stops it."""
        stop = asyncio.Event()
        async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as tasks:
            tasks.create_task(serve(self.settings, stop))
            yield stop
            stop.set()

    def operators(self) -> AbstractAsyncContextManager[Client]:
        """Open a client of the operators."""
        return self.client_of(amqp_names.OPERATIONS_TENANT)

    def client_of(self, tenant: str) -> AbstractAsyncContextManager[Client]:
        """Open a client of the tenant."""
        return Client.connect(self.settings.amqp_url.get_secret_value(), tenant=tenant)

    def open_pool(self) -> AbstractAsyncContextManager[asyncpg.Pool]:
        """Open a pool with the service role and the settings of the dlq_inspector."""
        url = self.settings.database_url.get_secret_value()
        return open_pool(url, name="test", bounds=PoolBounds())

    async def add_dead_run(
        self,
        number: int = 0,
        *,
        tenant: str = "acme",
        replay_number: int = 0,
        target: dict[str, Any] = TARGET,
        **fields: Any,
    ) -> DeadRun:
        """Insert a dead run and publish its dead letter.

        `target` is that of the version, and `fields` replace those of the dead letter.
        """
        key = RunKey(NINE + timedelta(seconds=number), uuid5(SCHEDULE, tenant))
        run_spec = orjson.dumps({"tenant": tenant, "key": "report", "target": target}).decode()
        await self.database.execute(_INSERT_VERSION, key.schedule_id, run_spec)
        if replay_number == 0:
            await self.database.execute(
                _INSERT_DEAD_RUN, key.scheduled_for, key.schedule_id, tenant
            )
        else:
            await self.set_run_state("dead", key)
        dead = dead_run(key, tenant=tenant, replay_number=replay_number)
        dead = dead.model_copy(
            update={name: value for name, value in fields.items() if value is not None}
        )
        await self.publish(amqp_names.DEAD, f"run.{tenant}", encode_all([dead]), "run.dead")
        return dead

    async def set_run_state(self, state: str, key: RunKey) -> None:
        await self.database.execute(_SET_RUN_STATE, key.scheduled_for, key.schedule_id, state)

    async def run_row(self, dead: DeadRun) -> asyncpg.Record:
        find = "SELECT * FROM runs WHERE scheduled_for = $1 AND schedule_id = $2"
        return await self.database.fetchrow(find, dead.scheduled_for, dead.schedule_id)

    async def publish(
        self, exchange: str, key: str, body: bytes, verb: str | None, **properties: Any
    ) -> None:
        type_ = None if verb is None else amqp_names.message_type(verb)
        message = aio_pika.Message(body, type=type_, **properties)
        target = await self.channel.get_exchange(exchange, ensure=False)
        await target.publish(message, key)

    async def send_command(self, verb: str, *ids: UUID, tenant: str = "acme") -> None:
        """Publish a command with ids and a note, as intake publishes an accepted command."""
        body = {"ids": [str(id_) for id_ in ids], "note": "after the fix"}
        await self.send_items(verb, AcceptedCommand(index=0, body=body), tenant=tenant)

    async def send_items(
        self, verb: str, *items: AcceptedCommand, tenant: str = "acme", single: bool = True
    ) -> None:
        """Publish accepted commands as one message."""
        commands = AcceptedCommands(
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
            amqp_names.CHANGES, amqp_names.CHANGES_DLQ, encode(commands), "accepted_commands"
        )

    async def next_response(self) -> Any:
        async with asyncio.timeout(TIMEOUT):
            message = await self.responses.get()
        assert message.correlation_id == "c-1"
        return orjson.loads(message.body)

    async def next_results(self) -> dict[UUID, str]:
        response = await self.next_response()
        return {UUID(id_): status for id_, status in response["results"].items()}

    async def wait_for_dead_letters(
        self, number: int, client: Client | None = None
    ) -> list[DeadLetterView]:
        """Return all dead letters of the client's tenant when there are `number` of them."""
        list_ = (client or self.acme).dead_letters

        async def all_rows() -> list[DeadLetterView]:
            rows = [row async for row in list_(state="all")]
            return rows if len(rows) >= number else []

        return await until(all_rows, within=TIMEOUT, what=f"{number} dead letters")

    async def next_tickets(self, number: int) -> list[dict[str, Any]]:
        """Return the next tickets in the queue of the dispatcher."""
        queue = await self.channel.get_queue(DISPATCHER.name, ensure=False)
        found: list[dict[str, Any]] = []
        async with asyncio.timeout(TIMEOUT):
            while len(found) < number:
                message = await queue.get(fail=False, no_ack=True)
                found += orjson.loads(message.body) if message is not None else []
        return found

    async def wait_until_consumed(self, queue: str) -> None:
        """Wait until the queue exists and has a consumer."""

        async def is_consumed() -> bool:
            found = await self._inspect(queue)
            return found is not None and bool(found.consumer_count)

        await until(is_consumed, within=TIMEOUT, what=f"a consumer of {queue}")

    async def wait_until_empty(self, queue: str) -> None:
        """Wait until the broker has delivered every message of the queue."""

        async def is_empty() -> bool:
            found = await self._inspect(queue)
            return found is not None and not found.message_count

        await until(is_empty, within=TIMEOUT, what=f"an empty queue {queue}")

    async def _inspect(self, queue: str) -> Queue.DeclareOk | None:
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
            AttemptRecord(
                replay_number=replay_number, number=number, finished_at=NINE, outcome="failed"
            )
            for number in (1, 2)
        ],
    )


def dead_letter_id(dead: DeadRun) -> UUID:
    return dead_run_id(dead.tenant, dead.run_id, dead.replay_number)
