"""`harebell topology check` against a real broker."""

import json
import sys
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE
from os import environ

import aio_pika
import pytest

from harebell.messaging.declare import declare
from harebell.messaging.topology.bus import INTAKE, SYSTEM

pytestmark = pytest.mark.broker


async def check(amqp_url: str) -> tuple[int | None, list[str], str]:
    """Exit code, problems, and what was said."""
    process = await create_subprocess_exec(
        *(sys.executable, "-m", "harebell.cli", "topology", "check", "-o", "json"),
        env=environ | {"HAREBELL_AMQP_URL": amqp_url},
        stdout=PIPE,
        stderr=PIPE,
    )
    printed, said = await process.communicate()
    return process.returncode, [row["problem"] for row in json.loads(printed)], said.decode()


async def test_a_declared_topology_has_no_problem(amqp_url: str) -> None:
    async with await aio_pika.connect(amqp_url) as connection:
        await declare(connection, SYSTEM)

    code, problems, said = await check(amqp_url)

    assert (code, problems) == (0, [])
    assert "has every exchange and queue" in said


async def test_what_is_missing_or_differs_is_named(amqp_url: str) -> None:
    async with await aio_pika.connect(amqp_url) as connection:
        await declare(connection, SYSTEM)
        channel = await connection.channel()
        await channel.queue_delete(INTAKE.name)
        await channel.declare_queue(INTAKE.name, durable=True)

    code, problems, said = await check(amqp_url)

    assert code == 1
    [problem] = problems
    assert problem.startswith(f"{INTAKE.name}: ")
    assert "problems: 1" in said
