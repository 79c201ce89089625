"""The private servers: readiness, recovery after a kill, and cleanup."""

import base64
import json
import os
import re
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import aio_pika
import asyncpg
import pytest
from tests.rig.broker_versions import INSTALLED, Installation
from tests.rig.servers import private_servers

from harebell.dev.pid_file import BackgroundProcess
from harebell.dev.postgres import DATA
from harebell.dev.rabbitmq import MAX_MESSAGE
from harebell.dev.servers import PrivateServers
from harebell.dev.spawn import tree
from harebell.dev.state import STATE_FILE

# Each test of the file starts a broker, which takes 9 s of CPU time.
pytestmark = [
    pytest.mark.broker,
    pytest.mark.postgres,
    pytest.mark.broker_version,
    pytest.mark.long,
]


@pytest.fixture(scope="module")
def servers() -> Iterator[PrivateServers]:
    with tempfile.TemporaryDirectory() as directory:
        servers = private_servers(Path(directory))
        try:
            servers.start()
            yield servers
        finally:
            servers.discard()


@pytest.fixture
async def database(servers: PrivateServers) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(servers.database_url)
    yield connection
    await connection.close()


@pytest.mark.requirement("S62")
async def test_confirmed_message_survives_a_killed_broker(servers: PrivateServers) -> None:
    async with await aio_pika.connect(servers.amqp_url) as connection:
        await (await connection.channel()).declare_queue("kept", durable=True)
    # a message is on disk when it is confirmed; of a new queue 3.10 may forget the last moments
    servers.broker.stop()
    servers.broker.start()
    async with await aio_pika.connect(servers.amqp_url) as connection:
        channel = await connection.channel()
        message = aio_pika.Message(b"[1]", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, "kept")

        servers.broker.kill()
    servers.broker.start()

    async with await aio_pika.connect(servers.amqp_url) as connection:
        queue = await (await connection.channel()).get_queue("kept")
        received = await queue.get(no_ack=True)
    assert received.body == b"[1]"


async def test_broker_rejects_a_message_above_the_maximum_size(
    servers: PrivateServers,
) -> None:
    async with await aio_pika.connect(servers.amqp_url) as connection:
        channel = await connection.channel()
        await channel.declare_queue("large", durable=True)
        fits, over = (aio_pika.Message(bytes(MAX_MESSAGE + more)) for more in (0, 1))

        await channel.default_exchange.publish(fits, "large")
        with pytest.raises(aio_pika.exceptions.ChannelPreconditionFailed, match="max size"):
            await channel.default_exchange.publish(over, "large")


def test_management_api_accepts_the_login_of_the_amqp_url(servers: PrivateServers) -> None:
    login = urlsplit(servers.amqp_url)
    token = base64.b64encode(f"{login.username}:{login.password}".encode()).decode()
    connection = HTTPConnection(urlsplit(servers.management_url).netloc, timeout=5)

    connection.request("GET", "/api/whoami", headers={"Authorization": f"Basic {token}"})
    answer = json.load(connection.getresponse())
    connection.close()

    assert answer["name"] == login.username
    assert "administrator" in answer["tags"]


def test_broker_has_the_requested_version(servers: PrivateServers) -> None:
    """Fail when the tests run on another version than the requested one."""
    release = os.environ.get("BROKER") or Installation(INSTALLED).version
    with socket.create_connection(("127.0.0.1", servers.broker.ports.amqp), 5) as client:
        client.sendall(b"AMQP\x00\x00\x09\x01")
        greeting = client.recv(4096)

    assert b"RabbitMQ" in greeting
    assert re.search(rb"versionS\0\0\0.(%b)" % re.escape(str(release)).encode(), greeting)


async def test_database_is_durable_and_counts_statements(
    database: asyncpg.Connection,
) -> None:
    settings = {
        name: await database.fetchval(f"SHOW {name}")
        for name in ("fsync", "synchronous_commit", "listen_addresses")
    }
    counted = await database.fetchval("SELECT count(*) FROM pg_stat_statements")

    assert settings == {"fsync": "on", "synchronous_commit": "on", "listen_addresses": "127.0.0.1"}
    assert counted > 0


async def test_committed_rows_survive_a_killed_database(servers: PrivateServers) -> None:
    connection = await asyncpg.connect(servers.database_url)
    await connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    servers.database.kill()
    connection.terminate()

    servers.database.start()
    connection = await asyncpg.connect(servers.database_url)
    answer = await connection.fetchval("SELECT answer FROM kept")
    await connection.close()

    assert answer == 42


def test_each_listener_is_on_loopback(servers: PrivateServers) -> None:
    daemons = (*servers.broker.daemons, *servers.database.daemons)
    pids = {daemon.process.pid for daemon in daemons if daemon.process}

    assert pids
    assert {address for pid in pids for address in _listening(pid)} <= {"0100007F", _LOOPBACK_6}


def test_other_object_finds_the_running_servers(servers: PrivateServers) -> None:
    before = [daemon.process for daemon in servers.broker.daemons]

    again = private_servers(servers.root)
    again.start()

    assert [daemon.process for daemon in again.broker.daemons] == before
    assert again.amqp_url == servers.amqp_url


def test_stop_ends_every_process_and_keeps_the_data(servers: PrivateServers) -> None:
    daemons = (*servers.broker.daemons, *servers.database.daemons)
    families = [process for d in daemons if d.process for process in tree(d.process)]
    place = servers.database.directory

    servers.stop()

    assert len(families) > len(daemons)
    assert [process for process in families if process.is_running] == []
    assert (place / "data" / "PG_VERSION").exists()


_LOOPBACK_6 = "00000000000000000000000001000000"
_LISTENING = "0A"


async def test_stack_folder_that_was_deleted_begins_with_an_empty_database() -> None:
    """The password of the earlier data is lost, so these data stay beside the new ones.

    The discarded database leaves no segment of shared memory.
    """
    with tempfile.TemporaryDirectory() as directory:
        first = private_servers(Path(directory))
        try:
            first.start(broker=False)
            first.stop()
            (Path(directory) / STATE_FILE).unlink()

            second = private_servers(Path(directory))
            second.start(broker=False)
            connection = await asyncpg.connect(second.database_url)
            await connection.close()
            kept = second.database.directory / f"{DATA}.1"
            assert (kept / "PG_VERSION").exists()
            segments = [each for server in second.database.daemons for each in _segments(server)]
        finally:
            private_servers(Path(directory)).discard()
    assert segments
    assert not any(each.exists() for each in segments)


def _segments(server: BackgroundProcess) -> set[Path]:
    """Return the files of the shared memory that a process has mapped."""
    assert server.process is not None
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    return {Path(name) for name in re.findall(r"/\S+/PostgreSQL\.\d+", maps)}


def _listening(pid: int) -> set[str]:
    """Return the addresses of the listening sockets of a process, in the form of the kernel."""
    held = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and f"socket:[{fields[9]}]" in held:
                found.add(fields[1].partition(":")[0])
    return found
