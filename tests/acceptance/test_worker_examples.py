"""The workers of the documentation as processes, in Python, Node and Go, and their failures."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aio_pika
import pytest
from tests.acceptance.stack import Stack, Tenant
from tests.rig.command_line import caller_environment
from tests.rig.node_packages import installed_packages
from tests.rig.polling import until
from tests.rig.servers import Servers, private_servers

from harebell.contract.json_codec import decode

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.long]

EXAMPLES: Final = Path(__file__).parents[2] / "docs/operations/examples"
NEEDS_NODE: Final = pytest.mark.skipif(shutil.which("node") is None, reason="Node is missing.")
NEEDS_GO: Final = pytest.mark.skipif(shutil.which("go") is None, reason="Go is missing.")
LANGUAGES: Final = (
    "python",
    pytest.param("node", marks=NEEDS_NODE),
    pytest.param("go", marks=NEEDS_GO),
)
# Debian's package of the Go client. A user installs it with `go get`.
GO_PACKAGES: Final = {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode"}
GO_BUILD_TIMEOUT: Final = 300  # seconds
RUNS: Final = 25  # more than the slots of one worker


@dataclass(kw_only=True)
class Workers:
    """The worker processes of one tenant, and the queue of their calls."""

    tenant: Tenant
    folder: Path

    @property
    def queue(self) -> str:
        return f"{self.tenant.name}.work"

    async def declare(self) -> None:
        async with await aio_pika.connect(self.tenant.stack.amqp_url) as connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange(self.queue, durable=True)
            queue = await channel.declare_queue(
                self.queue, durable=True, arguments={"x-queue-type": "quorum"}
            )
            await queue.bind(exchange, "")

    async def start(self, language: str) -> asyncio.subprocess.Process:
        """Start a worker and wait until it consumes."""
        arguments = (self.tenant.stack.amqp_url, self.tenant.name, self.queue)
        command = [sys.executable, str(EXAMPLES / "worker.py")]
        if language == "node":
            packages = await asyncio.to_thread(installed_packages, os.environ)
            script = self.folder / "worker.mjs"
            shutil.copy(EXAMPLES / "worker.mjs", script)
            if not (self.folder / "node_modules").exists():
                (self.folder / "node_modules").symlink_to(packages / "node_modules")
            command = ["node", str(script)]
        if language == "go":
            command = [str(await asyncio.to_thread(built_go_worker, self.folder.parent))]
        before = await self._consumers()
        process = await asyncio.create_subprocess_exec(
            *command, *arguments, env=caller_environment()
        )

        async def consumes() -> bool:
            assert process.returncode is None, f"The worker ended with {process.returncode}."
            return await self._consumers() > before

        await until(consumes, what="the consumer of the worker")
        return process

    async def put(self, key: str, **work: Any) -> None:
        call = {"exchange": self.queue, "json": {"table": key, **work}}
        target = {"amqp": {**call, "completion": "worker", "heartbeat": "5s"}}
        await self.tenant.put(key, {"now": True}, target)

    async def results(self) -> list[Any]:
        rows = await self.tenant.ledger.fetch(
            "SELECT a.result FROM attempts a JOIN runs r USING (scheduled_for, schedule_id) "
            "WHERE r.tenant = $1 AND a.outcome = 'succeeded'",
            self.tenant.name,
        )
        return [decode(row["result"].encode()) for row in rows]

    async def _consumers(self) -> int:
        async with await aio_pika.connect(self.tenant.stack.amqp_url) as connection:
            channel = await connection.channel()
            declared = await channel.declare_queue(self.queue, passive=True)
            return declared.declaration_result.consumer_count or 0


def built_go_worker(folder: Path) -> Path:
    """Build the Go worker once for all tests of this process."""
    program = folder / "worker-go"
    if not program.exists():
        subprocess.run(  # noqa: S603 - a fixed command
            [shutil.which("go") or "go", "build", "-o", program, EXAMPLES / "worker.go"],
            env={**os.environ, **GO_PACKAGES, "GOCACHE": str(folder / "go-cache")},
            check=True,
            timeout=GO_BUILD_TIMEOUT,
        )
    return program


@asynccontextmanager
async def open_workers(tenant: Tenant, folder: Path) -> AsyncIterator[Workers]:
    workers = Workers(tenant=tenant, folder=folder)
    await workers.declare()
    yield workers


async def end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


@pytest.fixture
async def workers(tenant: Tenant, tmp_path: Path) -> AsyncIterator[Workers]:
    async with open_workers(tenant, tmp_path) as opened:
        yield opened


@pytest.mark.requirement("S59")
@pytest.mark.parametrize("language", LANGUAGES)
async def test_worker_completes_more_runs_than_it_has_slots(
    workers: Workers, language: str
) -> None:
    process = await workers.start(language)
    try:
        for number in range(RUNS):
            await workers.put(f"table-{number:02}", steps=1, seconds=0.2)
        await workers.tenant.until_runs(RUNS, "succeeded")
    finally:
        await end(process)

    results = await workers.results()
    assert sorted(each["table"] for each in results) == [f"table-{n:02}" for n in range(RUNS)]
    assert {each["attempt"] for each in results} == {1}


@pytest.mark.requirement("S59")
@pytest.mark.parametrize("language", LANGUAGES)
async def test_worker_works_longer_than_its_lease(workers: Workers, language: str) -> None:
    process = await workers.start(language)
    try:
        await workers.put("orders", steps=2, seconds=5)
        await workers.tenant.until_runs(1, "succeeded")
    finally:
        await end(process)

    assert await workers.results() == [{"table": "orders", "attempt": 1}]


@pytest.mark.requirement("S59")
@pytest.mark.parametrize("language", LANGUAGES)
async def test_another_worker_has_the_next_attempt_of_a_killed_worker(
    workers: Workers, language: str
) -> None:
    first = await workers.start(language)
    await workers.put("orders", steps=1, seconds=3)

    async def is_working() -> bool:
        (row,) = await workers.tenant.runs()
        return row["lease_until"] is not None and await _ready(workers) == 0

    await workers.tenant.until_runs(1, "running")
    await until(is_working, what="the work of the first worker")
    await asyncio.sleep(1)  # the acknowledgement has arrived
    await end(first)
    second = await workers.start(language)
    try:
        await workers.tenant.until_runs(1, "succeeded")
    finally:
        await end(second)

    (run,) = await workers.tenant.runs()
    attempts = await workers.tenant.ledger.fetch(
        "SELECT outcome FROM attempts WHERE schedule_id = $1 ORDER BY number", run["schedule_id"]
    )
    assert [row["outcome"] for row in attempts] == ["lease_expired", "succeeded"]
    assert await workers.results() == [{"table": "orders", "attempt": 2}]


@pytest.mark.requirement("S59")
@pytest.mark.parametrize("language", LANGUAGES)
async def test_worker_stops_a_cancelled_run(workers: Workers, language: str) -> None:
    process = await workers.start(language)
    try:
        await workers.put("orders", steps=100, seconds=1)
        await workers.tenant.until_runs(1, "running")
        (run,) = [each async for each in workers.tenant.harebell.runs()]
        await workers.tenant.harebell.cancel_run(run.run_id)
        await workers.tenant.until_runs(1, "cancelled")
    finally:
        await end(process)

    (attempt,) = await workers.tenant.attempts(run.run_id)
    assert (attempt["outcome"], attempt["error_code"]) == ("cancelled", "stopped")


@pytest.mark.requirement("S59")
async def test_failure_of_the_work_has_its_code_and_no_retry(workers: Workers) -> None:
    process = await workers.start("python")
    call = {"exchange": workers.queue, "json": {"no": "table"}, "completion": "worker"}
    try:
        await workers.tenant.put("broken", {"now": True}, {"amqp": call})
        (run,) = await workers.tenant.until_runs(1, "dead")
    finally:
        await end(process)

    assert run["reason"] == "invalid_request"


@pytest.fixture(scope="module")
def own_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    private = private_servers(tmp_path_factory.mktemp("worker-servers"))
    try:
        private.start()
        yield Servers(private.amqp_url, private.database_url, private)
    finally:
        private.discard()


@pytest.mark.requirement("S59")
async def test_runs_of_workers_have_one_attempt_when_the_broker_is_killed(
    own_servers: Servers, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert own_servers.private is not None
    broker = own_servers.private.broker
    opened = await asyncio.to_thread(Stack.open, own_servers, tmp_path_factory.mktemp("stack"))
    stack = await asyncio.to_thread(opened.__enter__)
    try:
        await asyncio.to_thread(stack.start)
        async with stack.tenant("killed") as tenant, open_workers(tenant, tmp_path) as workers:
            process = await workers.start("python")
            try:
                for number in range(5):
                    await workers.put(f"table-{number}", steps=1, seconds=20)
                await tenant.until_runs(5, "running")
                await asyncio.sleep(3)  # the worker has acknowledged the calls
                await asyncio.to_thread(broker.kill)
                await asyncio.sleep(8)  # longer than a lease
                await asyncio.to_thread(broker.start)
                await tenant.until_runs(5, "succeeded", within=90)
            finally:
                await end(process)

            assert {each["attempt"] for each in await workers.results()} == {1}
    finally:
        await asyncio.to_thread(opened.__exit__, None, None, None)


async def _ready(workers: Workers) -> int:
    async with await aio_pika.connect(workers.tenant.stack.amqp_url) as connection:
        channel = await connection.channel()
        declared = await channel.declare_queue(workers.queue, passive=True)
        return declared.declaration_result.message_count or 0
