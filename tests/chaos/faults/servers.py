"""Rows 10, 14, 15 and 22: the broker and the database are restarted, killed, blocked or locked."""

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import asyncpg
from tests.chaos.environment import Environment
from tests.chaos.faults.registry import fault

# The inner program, because the outer program of Debian changes the operating system user.
CONTROL: Final = Path("/usr/lib/rabbitmq/bin/rabbitmqctl")
REPEAT_INTERVAL: Final = 1.0  # seconds between two repetitions of a fault
MAX_SESSIONS: Final = 400  # more than the database permits
TERMINATE: Final = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND usename LIKE $1
"""


@asynccontextmanager
async def open_session(environment: Environment) -> AsyncIterator[asyncpg.Connection]:
    """Open a direct session of the database owner."""
    connection = await asyncpg.connect(environment.stack.database_url)
    try:
        yield connection
    finally:
        await connection.close()


def control(environment: Environment, *arguments: str) -> None:
    """Run `rabbitmqctl` for the private node."""
    broker, directory = environment.servers.broker, environment.servers.root / "rabbitmq"
    variables = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(directory / "home"),  # contains the Erlang cookie
        "ERL_EPMD_PORT": str(broker.ports.epmd),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_NODENAME": "harebell@localhost",
        "LANG": "C.UTF-8",
    }
    command = [str(CONTROL), "-q", *arguments]
    subprocess.run(command, env=variables, check=True, capture_output=True)  # noqa: S603  # a fixed command


@fault("10a", "broker restarted")
async def broker_restart(environment: Environment) -> AsyncIterator[None]:
    await asyncio.to_thread(environment.servers.broker.stop)
    yield
    await asyncio.to_thread(environment.servers.broker.start)


@fault("10b", "broker killed")
async def broker_kill(environment: Environment) -> AsyncIterator[None]:
    await asyncio.to_thread(environment.servers.broker.kill)
    yield
    await asyncio.to_thread(environment.servers.broker.start)


@fault("22a", "memory alarm: publishers blocked")
async def memory_alarm(environment: Environment) -> AsyncIterator[None]:
    await asyncio.to_thread(control, environment, "set_vm_memory_high_watermark", "0.00001")
    yield
    await asyncio.to_thread(control, environment, "set_vm_memory_high_watermark", "0.4")


@fault("22b", "disk alarm: publishers blocked")
async def disk_alarm(environment: Environment) -> AsyncIterator[None]:
    await asyncio.to_thread(control, environment, "set_disk_free_limit", "9000GB")
    yield
    await asyncio.to_thread(control, environment, "set_disk_free_limit", "50MB")


@fault("14a", "PostgreSQL restarted, fast")
async def database_restart(environment: Environment) -> AsyncIterator[None]:
    await asyncio.to_thread(environment.servers.database.stop)
    yield
    await asyncio.to_thread(environment.servers.database.start)


@fault("14b", "PostgreSQL stopped, immediate")
async def database_crash(environment: Environment) -> AsyncIterator[None]:
    await asyncio.to_thread(_quit, environment)
    yield
    await asyncio.to_thread(environment.servers.database.start)


def _quit(environment: Environment) -> None:
    (daemon,) = environment.servers.database.daemons
    process = daemon.process
    assert process is not None
    process.send(signal.SIGQUIT)
    while process.is_running:
        time.sleep(0.02)
    environment.servers.database.stop()


@fault("14c", "PostgreSQL killed")
async def database_kill(environment: Environment) -> AsyncIterator[None]:
    await asyncio.to_thread(environment.servers.database.kill)
    yield
    await asyncio.to_thread(environment.servers.database.start)


def _terminated(row: str, owners: str, service: str) -> None:
    @fault(row, f"sessions of {owners} terminated repeatedly")
    async def inject(environment: Environment) -> AsyncIterator[None]:
        async def terminate_repeatedly() -> None:
            async with open_session(environment) as connection:
                while True:
                    await connection.execute(TERMINATE, f"harebell_{service}")
                    await asyncio.sleep(REPEAT_INTERVAL)

        terminating = asyncio.create_task(terminate_repeatedly())
        yield
        terminating.cancel()


_terminated("14d", "tickers", "ticker")
_terminated("14e", "executors", "executor")
_terminated("14f", "all services", "%")


@fault("15a", "rows of runs and schedules locked")
async def row_locks(environment: Environment) -> AsyncIterator[None]:
    async with open_session(environment) as connection, connection.transaction():
        await connection.execute("SELECT 1 FROM runs FOR UPDATE SKIP LOCKED")
        await connection.execute("SELECT 1 FROM schedule_state FOR UPDATE SKIP LOCKED")
        yield


@fault("15b", "the table of runs locked")
async def table_lock(environment: Environment) -> AsyncIterator[None]:
    async with open_session(environment) as connection, connection.transaction():
        await connection.execute("LOCK TABLE runs IN ACCESS EXCLUSIVE MODE")
        yield


@fault("15c", "no connection to PostgreSQL left")
async def no_connection_left(environment: Environment) -> AsyncIterator[None]:
    """Open every permitted session, including those that the services lose."""
    async with AsyncExitStack() as sessions, open_session(environment) as connection:
        await _open_all(environment, sessions)
        await connection.execute(TERMINATE, "harebell_%")
        await _open_all(environment, sessions)
        yield


async def _open_all(environment: Environment, sessions: AsyncExitStack) -> None:
    with suppress(asyncpg.TooManyConnectionsError):
        for _ in range(MAX_SESSIONS):
            await sessions.enter_async_context(open_session(environment))
