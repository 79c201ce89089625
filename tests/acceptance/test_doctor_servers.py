"""`harebell doctor` with faulty servers: alarms, plugins, settings and servers without answers."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from tests.acceptance.doctor_command import run
from tests.rig.command_line import MAX_TIME
from tests.rig.listener import listening
from tests.rig.polling import until
from tests.rig.servers import private_servers, server_directory

from harebell.dev.servers import PrivateServers

pytestmark = [
    pytest.mark.broker,
    pytest.mark.postgres,
    pytest.mark.broker_version,
    pytest.mark.requirement("S61"),
]


@asynccontextmanager
async def silent_server() -> AsyncIterator[int]:
    """Yield the port of a server that accepts each connection and never answers."""

    async def ignore(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read()

    async with listening(ignore) as port:
        yield port


@pytest.mark.long
async def test_silent_servers_end_no_check_late() -> None:
    async with silent_server() as port:
        code, found = await run(
            HAREBELL_AMQP_URL=f"amqp://127.0.0.1:{port}",
            HAREBELL_MANAGEMENT_URL=f"http://127.0.0.1:{port}",
            HAREBELL_DATABASE_URL=f"postgresql://127.0.0.1:{port}/x",
        )

    assert code == 1
    assert {name for name, rows in found.items() if rows[0]["result"] == "failed"} == {
        "broker link",
        "management link",
        "database link",
    }


@pytest.fixture(scope="module")
def own_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServers]:
    """Yield servers of this module, because their faults would stop other tests."""
    with server_directory(tmp_path_factory.mktemp("doctor-servers")) as root:
        private = private_servers(root)
        try:
            private.start()
            yield private
        finally:
            private.discard()


def control(servers: PrivateServers, program: str, *arguments: str) -> None:
    """Run a program of RabbitMQ for the private node."""
    directory = servers.root / "rabbitmq"
    variables = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(directory / "home"),  # contains the Erlang cookie
        "ERL_EPMD_PORT": str(servers.broker.ports.epmd),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
        "RABBITMQ_NODENAME": servers.broker.name,
        "LANG": "C.UTF-8",
    }
    command = [f"/usr/lib/rabbitmq/bin/{program}", "-q", *arguments]
    subprocess.run(command, env=variables, check=True, capture_output=True)  # noqa: S603  # a fixed command


async def check_own(servers: PrivateServers, name: str) -> set[tuple[str, str]]:
    """Return the results and the texts of one check on the private servers."""
    _, found = await run(
        HAREBELL_AMQP_URL=servers.amqp_url,
        HAREBELL_MANAGEMENT_URL=servers.management_url,
        HAREBELL_DATABASE_URL=servers.database_url,
    )
    return {(row["result"], row["text"]) for row in found[name]}


@pytest.mark.long
@pytest.mark.skipif(bool(os.environ.get("BROKER")), reason="The programs are those of Debian.")
@pytest.mark.parametrize(
    ("fault", "repair", "text"),
    [
        (
            ("set_vm_memory_high_watermark", "0.00001"),
            ("set_vm_memory_high_watermark", "0.4"),
            "has a memory alarm, so the broker accepts no message.",
        ),
        (
            ("set_disk_free_limit", "9000GB"),
            ("set_disk_free_limit", "50MB"),
            "has too little free disk space, so the broker accepts no message.",
        ),
    ],
)
async def test_alarm_of_the_broker_fails(
    own_servers: PrivateServers, fault: tuple[str, str], repair: tuple[str, str], text: str
) -> None:
    async def has_alarm() -> bool:
        found = await check_own(own_servers, "alarms")
        return any(result == "failed" and each.endswith(text) for result, each in found)

    async def has_none() -> bool:
        return {result for result, _ in await check_own(own_servers, "alarms")} == {"ok"}

    await until(has_none, within=MAX_TIME, what="a node without an alarm")
    control(own_servers, "rabbitmqctl", *fault)
    try:
        await until(has_alarm, within=MAX_TIME, what=text)
    finally:
        control(own_servers, "rabbitmqctl", *repair)
    await until(has_none, within=MAX_TIME, what="the end of the alarm")


@pytest.mark.long
@pytest.mark.skipif(bool(os.environ.get("BROKER")), reason="The programs are those of Debian.")
async def test_disabled_plugin_is_a_warning(own_servers: PrivateServers) -> None:
    async def is_warned() -> bool:
        found = await check_own(own_servers, "plugins")
        return any(
            result == "warning" and "rabbitmq_prometheus is disabled" in text
            for result, text in found
        )

    control(own_servers, "rabbitmq-plugins", "disable", "rabbitmq_prometheus")
    try:
        await until(is_warned, within=MAX_TIME, what="the warning")
    finally:
        control(own_servers, "rabbitmq-plugins", "enable", "rabbitmq_prometheus")


@pytest.mark.long
@pytest.mark.parametrize("setting", ["fsync", "full_page_writes", "autovacuum", "track_counts"])
async def test_setting_of_the_server_that_is_off_fails(
    own_servers: PrivateServers, setting: str
) -> None:
    owner = await asyncpg.connect(own_servers.database_url)

    async def is_failed() -> bool:
        found = await check_own(own_servers, "database settings")
        return any(
            result == "failed" and f"The setting {setting} is off" in text for result, text in found
        )

    try:
        await owner.execute(f"ALTER SYSTEM SET {setting} = off")
        await owner.execute("SELECT pg_reload_conf()")
        await until(is_failed, within=MAX_TIME, what=setting)
    finally:
        await owner.execute(f"ALTER SYSTEM RESET {setting}")
        await owner.execute("SELECT pg_reload_conf()")
        await owner.close()


@pytest.mark.long
async def test_server_with_few_free_connections_fails(own_servers: PrivateServers) -> None:
    opened: list[Any] = []
    try:
        first = await asyncpg.connect(own_servers.database_url)
        opened.append(first)
        limit = int(await first.fetchval("SHOW max_connections"))
        while len(opened) < limit * 0.92:
            opened.append(await asyncpg.connect(own_servers.database_url))
        [(result, text)] = await check_own(own_servers, "database connections")
    finally:
        for connection in opened:
            connection.terminate()

    assert result == "failed"
    assert f"accepts {limit - 3}" in text
