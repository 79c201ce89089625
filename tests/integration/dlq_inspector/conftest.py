"""Fixtures: an environment on real servers, with and without a running dlq_inspector."""

import asyncio
from collections.abc import AsyncIterator

import aio_pika
import asyncpg
import pytest
from aio_pika.abc import AbstractIncomingMessage
from tests.integration.dlq_inspector.environment import DlqEnvironment
from tests.rig.servers import as_role

from harebell.client import Client
from harebell.runtime import failpoint
from harebell.runtime.settings import DlqInspectorSettings


@pytest.fixture
async def environment(core_url: str, database_url: str) -> AsyncIterator[DlqEnvironment]:
    settings = DlqInspectorSettings.load(
        {
            "HAREBELL_AMQP_URL": core_url,
            "HAREBELL_DATABASE_URL": as_role(database_url, "dlq_inspector"),
            "HAREBELL_INSTANCE_ID": "inspector-1",
            "HAREBELL_TOPOLOGY_MODE": "declare",
        }
    )
    responses: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
    database = await asyncpg.connect(database_url)
    async with (
        await aio_pika.connect(core_url) as connection,
        Client.connect(core_url, tenant="acme") as acme,
    ):
        channel = await connection.channel()
        replies = await channel.declare_queue(exclusive=True)
        await replies.consume(responses.put, no_ack=True)
        yield DlqEnvironment(
            settings=settings,
            database=database,
            connection=connection,
            channel=channel,
            acme=acme,
            responses=responses,
            reply_to=replies.name,
        )
    failpoint.arm(None)
    await database.close()


@pytest.fixture
async def dlq(environment: DlqEnvironment) -> AsyncIterator[DlqEnvironment]:
    """Yield the environment with a running dlq_inspector."""
    async with environment.running_inspector():
        yield environment
