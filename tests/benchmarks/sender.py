"""A process that sends immediate schedules, one per message, as another service would.

Run `python -m tests.benchmarks.sender URL TENANT TARGET`, with the target as JSON.
The process writes a line when it is ready. For each line `number name`, it sends that many
schedules and writes the times of the first publish and of the last confirm.
Its CPU time counts for no service.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import aio_pika
import orjson
from aio_pika.abc import AbstractExchange
from yarl import URL

from harebell.contract.amqp_names import COMMANDS, message_key

MAX_UNCONFIRMED: Final = 400  # messages of the publisher
START_TASK: Final = {"task": {"name": "bench.start"}}


class Sender:
    """A running sender of one tenant."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._read()

    @classmethod
    @contextmanager
    def open(
        cls, url: str, tenant: str, *, target: Mapping[str, Any] = START_TASK
    ) -> Iterator["Sender"]:
        name = orjson.dumps(target).decode()
        command = (sys.executable, "-m", "tests.benchmarks.sender", url, tenant, name)
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:  # noqa: S603  # a fixed command
            try:
                yield cls(process)
            finally:
                process.kill()

    async def send(self, number: int, name: str) -> tuple[float, float]:
        """Send schedules. Return the times of the first publish and of the last confirm."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number} {name}\n")
        self._process.stdin.flush()
        began, ended = await asyncio.to_thread(self._read)
        return began, ended

    def _read(self) -> list[float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "The sender has ended."
        times: list[float] = orjson.loads(line)
        return times


async def send(exchange: AbstractExchange, key: str, *, number: int, name: str) -> None:
    """Send `number` schedules with separate keys, and wait for every confirm."""
    url, _, target = sys.argv[1:]
    user, free = URL(url).user, asyncio.Semaphore(MAX_UNCONFIRMED)

    async def publish(index: int) -> None:
        body = {"key": f"{name}-{index}", "when": {"now": True}, "target": orjson.loads(target)}
        message = aio_pika.Message(
            orjson.dumps(body),
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            content_type="application/json",
            message_id=f"{name}-{index}",
            user_id=user,
        )
        try:
            await exchange.publish(message, key)
        finally:
            free.release()

    async with asyncio.TaskGroup() as group:
        for index in range(number):
            await free.acquire()
            group.create_task(publish(index))


async def main() -> None:
    """Answer the lines of the standard input until it ends."""
    url, tenant, _ = sys.argv[1:]
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel()
        exchange = await channel.get_exchange(COMMANDS, ensure=False)
        _write([])
        while line := await asyncio.to_thread(sys.stdin.readline):
            number, name = line.split()
            began = time.time()
            await send(exchange, message_key(tenant, "schedule.put"), number=int(number), name=name)
            _write([began, time.time()])


def _write(times: list[float]) -> None:
    sys.stdout.write(orjson.dumps(times).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
