"""Rows 10, 14, 15 and 22: the broker and the database restarted, killed, blocked, locked."""

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import asyncpg
from tests.chaos.environment import Scene
from tests.chaos.faults.registry import fault

CONTROL: Final = Path("/usr/lib/rabbitmq/bin/rabbitmqctl")  # the inner one: Debian's changes users
AGAIN: Final = 1.0  # seconds between two strikes of a fault that strikes repeatedly
CROWD: Final = 400  # connections, more than the database has
TERMINATE: Final = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND usename LIKE $1
"""


@asynccontextmanager
async def session(scene: Scene) -> AsyncIterator[asyncpg.Connection]:
    """As the owner, not by way of a link."""
    connection = await asyncpg.connect(scene.stack.database_url)
    try:
        yield connection
    finally:
        await connection.close()


def control(scene: Scene, *order: str) -> None:
    """`rabbitmqctl` to the private node."""
    broker, directory = scene.servers.broker, scene.servers.root / "rabbitmq"
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(directory / "home"),  # where the cookie is
        "ERL_EPMD_PORT": str(broker.ports.epmd),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_NODENAME": "harebell@localhost",
        "LANG": "C.UTF-8",
    }
    command = [str(CONTROL), "-q", *order]
    subprocess.run(command, env=environment, check=True, capture_output=True)  # noqa: S603  # ours


@fault("10a", "broker restarted")
async def broker_restart(scene: Scene) -> AsyncIterator[None]:
    await asyncio.to_thread(scene.servers.broker.stop)
    yield
    await asyncio.to_thread(scene.servers.broker.start)


@fault("10b", "broker killed")
async def broker_kill(scene: Scene) -> AsyncIterator[None]:
    await asyncio.to_thread(scene.servers.broker.kill)
    yield
    await asyncio.to_thread(scene.servers.broker.start)


@fault("22a", "memory alarm: publishers blocked")
async def memory_alarm(scene: Scene) -> AsyncIterator[None]:
    await asyncio.to_thread(control, scene, "set_vm_memory_high_watermark", "0.00001")
    yield
    await asyncio.to_thread(control, scene, "set_vm_memory_high_watermark", "0.4")


@fault("22b", "disk alarm: publishers blocked")
async def disk_alarm(scene: Scene) -> AsyncIterator[None]:
    await asyncio.to_thread(control, scene, "set_disk_free_limit", "9000GB")
    yield
    await asyncio.to_thread(control, scene, "set_disk_free_limit", "50MB")


@fault("14a", "PostgreSQL restarted, fast")
async def database_restart(scene: Scene) -> AsyncIterator[None]:
    await asyncio.to_thread(scene.servers.database.stop)
    yield
    await asyncio.to_thread(scene.servers.database.start)


@fault("14b", "PostgreSQL stopped, immediate")
async def database_crash(scene: Scene) -> AsyncIterator[None]:
    await asyncio.to_thread(_quit, scene)
    yield
    await asyncio.to_thread(scene.servers.database.start)


def _quit(scene: Scene) -> None:
    (daemon,) = scene.servers.database.daemons
    process = daemon.process
    assert process is not None
    process.send(signal.SIGQUIT)
    while process.is_running:
        time.sleep(0.02)
    scene.servers.database.stop()


@fault("14c", "PostgreSQL killed")
async def database_kill(scene: Scene) -> AsyncIterator[None]:
    await asyncio.to_thread(scene.servers.database.kill)
    yield
    await asyncio.to_thread(scene.servers.database.start)


def _terminated(row: str, whose: str, service: str) -> None:
    @fault(row, f"sessions of {whose} terminated, again and again")
    async def strike(scene: Scene) -> AsyncIterator[None]:
        async def again() -> None:
            async with session(scene) as connection:
                while True:
                    await connection.execute(TERMINATE, f"harebell_{service}")
                    await asyncio.sleep(AGAIN)

        terminating = asyncio.create_task(again())
        yield
        terminating.cancel()


_terminated("14d", "tickers", "ticker")
_terminated("14e", "executors", "executor")
_terminated("14f", "all services", "%")


@fault("15a", "rows of runs and schedules locked")
async def row_locks(scene: Scene) -> AsyncIterator[None]:
    async with session(scene) as connection, connection.transaction():
        await connection.execute("SELECT 1 FROM runs FOR UPDATE SKIP LOCKED")
        await connection.execute("SELECT 1 FROM schedule_state FOR UPDATE SKIP LOCKED")
        yield


@fault("15b", "the table of runs locked")
async def table_lock(scene: Scene) -> AsyncIterator[None]:
    async with session(scene) as connection, connection.transaction():
        await connection.execute("LOCK TABLE runs IN ACCESS EXCLUSIVE MODE")
        yield


@fault("15c", "no connection to PostgreSQL left")
async def crowd(scene: Scene) -> AsyncIterator[None]:
    """Whatever a service gives back goes to the crowd."""
    async with AsyncExitStack() as crowded, session(scene) as connection:
        await _fill(scene, crowded)
        await connection.execute(TERMINATE, "harebell_%")
        await _fill(scene, crowded)
        yield


async def _fill(scene: Scene, crowded: AsyncExitStack) -> None:
    with suppress(asyncpg.TooManyConnectionsError):
        for _ in range(CROWD):
            await crowded.enter_async_context(session(scene))
