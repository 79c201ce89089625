"""Encrypted links: verified servers, client certificates, and faults of certificates in words."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import aio_pika
import aiohttp
import asyncpg
import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, now
from tests.rig.certificates import Authority, Pair
from tests.rig.command_line import harebell
from tests.rig.polling import until
from tests.rig.servers import ROLE_PASSWORD, as_role, manage
from tests.rig.tls_servers import TlsServers
from yarl import URL

from harebell.bootstrap.service_context import open_service
from harebell.connection.amqp import connect
from harebell.connection.tls import BAD_CERTIFICATE, TlsServer, read_certificate
from harebell.contract.errors import BrokerUnavailable, DatabaseUnavailable
from harebell.dev.plan import ServiceCounts
from harebell.dev.ports import choose_ports
from harebell.messaging import declare
from harebell.messaging.topology.bus import SYSTEM
from harebell.runtime.database_url import read_database_url
from harebell.runtime.settings import ServiceSettings
from harebell.storage.engine import open_pool, translate_db_errors
from harebell.storage.migrate import migrate
from harebell.storage.role_passwords import ROLES

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.broker_version]

IS_ENCRYPTED = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
EXPIRED = timedelta(days=3)
OTHER_HOST = ("broker.example",)
MAX_LATENESS = 1.0  # seconds, which a rotation may add to the start of a run
SCHEDULES = 10  # each with one run per second
LATENESS = """
SELECT extract(epoch FROM a.started_at - r.scheduled_for)::float AS late
FROM runs r JOIN attempts a USING (scheduled_for, schedule_id)
WHERE r.scheduled_for > $1 AND a.number = 1
"""


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServers]:
    with TlsServers.open(tmp_path_factory.mktemp("tls")) as opened:
        yield opened


@pytest.fixture(autouse=True)
async def good_certificates(tls: TlsServers) -> None:
    """Begin each test with valid certificates on both servers."""
    tls.use_in_broker(tls.good)
    await tls.use_in_database(tls.good)
    await until(lambda: accepts(tls), what="the valid certificates")


@pytest.fixture
def other(tmp_path: Path) -> Authority:
    """Return an authority that signed no certificate of a server."""
    return Authority(tmp_path / "other", "Other Authority")


async def accepts(tls: TlsServers) -> bool:
    try:
        await try_database(tls.database_url())
        await try_broker(tls.amqp_url())
    except (BrokerUnavailable, DatabaseUnavailable):
        return False
    return True


async def refuses(tls: TlsServers) -> bool:
    return not await accepts(tls)


async def try_broker(url: str) -> None:
    await (await connect(url, name="test", properties={})).close()


async def try_database(url: str) -> bool:
    """Return whether a connection of a pool is encrypted."""
    async with open_pool(url, name="test") as pool:
        with translate_db_errors():
            is_encrypted: bool = await pool.fetchval(IS_ENCRYPTED)
    return is_encrypted


@pytest.mark.requirement("P9")
@pytest.mark.parametrize(
    ("mode", "is_encrypted"),
    [
        ("disable", False),
        ("allow", False),
        ("prefer", True),
        ("require", True),
        ("verify-ca", True),
        ("verify-full", True),
    ],
)
@pytest.mark.long
async def test_pool_and_migration_honour_sslmode(
    tls: TlsServers, mode: str, *, is_encrypted: bool
) -> None:
    url = tls.database_url(sslmode=mode)

    assert await try_database(url) is is_encrypted
    await migrate(url)


@pytest.mark.requirement("P9")
@pytest.mark.parametrize(
    ("mode", "names_host", "knows_authority", "is_accepted"),
    [
        ("require", False, True, True),
        ("require", True, False, False),  # as in libpq, because the URL names the authority
        ("verify-ca", False, True, True),
        ("verify-ca", True, False, False),
        ("verify-full", True, True, True),
        ("verify-full", False, True, False),
        ("verify-full", True, False, False),
    ],
)
async def test_mode_decides_which_certificates_of_the_database_are_accepted(
    tls: TlsServers,
    other: Authority,
    mode: str,
    *,
    names_host: bool,
    knows_authority: bool,
    is_accepted: bool,
) -> None:
    if not names_host:
        await tls.use_in_database(tls.authority.issue("database", names=("database.example",)))
    root = (tls.authority if knows_authority else other).file

    url = tls.database_url(sslmode=mode, sslrootcert=str(root))

    async def is_verified() -> bool:
        try:
            return await try_database(url)
        except DatabaseUnavailable as error:
            return error.code != BAD_CERTIFICATE

    async def is_as_expected() -> bool:
        return await is_verified() is is_accepted

    await until(is_as_expected, what=f"{is_accepted=}")


@pytest.mark.requirement("P9")
async def test_require_without_an_authority_encrypts_and_verifies_nothing(tls: TlsServers) -> None:
    assert await try_database(tls.database_url(sslmode="require", sslrootcert=""))


@pytest.mark.requirement("P9")
async def test_certificate_of_a_role_replaces_its_password(tls: TlsServers) -> None:
    await migrate(tls.database_url(), role_passwords=dict.fromkeys(ROLES, ROLE_PASSWORD))
    auditor, ticker = (
        tls.authority.issue("harebell_auditor"),
        tls.authority.issue("harebell_ticker"),
    )

    def url(pair_of: str) -> str:
        pair = {"auditor": auditor, "ticker": ticker}[pair_of]
        return tls.database_url(
            "harebell_auditor", sslcert=str(pair.certificate), sslkey=str(pair.key)
        )

    assert await try_database(url("auditor"))
    with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
        await try_database(url("ticker"))
    auditor.replace_by(ticker)  # the files are read again for each connection
    with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError):
        await try_database(url("auditor"))


@pytest.mark.requirement("P9")
async def test_client_accepts_a_broker_only_with_a_certificate_of_its_authority(
    tls: TlsServers, other: Authority
) -> None:
    await try_broker(tls.amqp_url())

    with pytest.raises(BrokerUnavailable) as caught:
        await try_broker(tls.amqp_url(cafile=str(other.file)))

    assert caught.value.code == BAD_CERTIFICATE
    assert caught.value.reason.startswith("The certificate of the broker is not valid: ")
    await try_broker(tls.amqp_url(cafile=str(other.file), no_verify_ssl="1"))


@pytest.mark.requirement("P9")
async def test_certificate_of_a_client_is_its_login(tls: TlsServers) -> None:
    broker = tls.private.broker
    manage(broker, "PUT", "users/acme", {"password_hash": "", "tags": ""})
    rights = {"configure": "acme.*", "write": "acme.*|amq.default", "read": "acme.*"}
    manage(broker, "PUT", "permissions/%2F/acme", rights)
    acme, umbrella = tls.authority.issue("acme"), tls.authority.issue("umbrella")

    def url(pair_of: str) -> str:
        pair = {"acme": acme, "umbrella": umbrella}[pair_of]
        return tls.amqp_url(
            user="acme", auth="external", certfile=str(pair.certificate), keyfile=str(pair.key)
        )

    connection = await connect(url("acme"), name="test", properties={})
    channel = await connection.channel()
    queue = await channel.declare_queue("acme.q", auto_delete=True)
    # The broker closes the channel for a `user_id` that is not the login.
    message = aio_pika.Message(b"signed", user_id="acme")
    await channel.default_exchange.publish(message, queue.name)
    received = await queue.get(timeout=5)
    await connection.close()

    assert received is not None
    assert received.user_id == "acme"
    with pytest.raises(BrokerUnavailable):
        await try_broker(url("umbrella"))  # the broker has no such user


@asynccontextmanager
async def starting_service(tls: TlsServers, port: int, **environment: str) -> AsyncIterator[None]:
    """Run the start of a service, which waits for both servers, and its loops."""
    settings = ServiceSettings.load(
        {
            "HAREBELL_AMQP_URL": tls.amqp_url(),
            "HAREBELL_DATABASE_URL": tls.database_url(),
            "HAREBELL_HTTP_PORT": str(port),
            "HAREBELL_TOPOLOGY_MODE": "declare",
        }
        | environment
    )
    stop = asyncio.Event()

    async def run() -> None:
        async with open_service(settings, "dispatcher", stop) as context:
            running = asyncio.create_task(context.run())
            await stop.wait()
            running.cancel()

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(task, 20)


@pytest.fixture
def port(tmp_path: Path) -> int:
    return choose_ports(["health"], seed=str(tmp_path), remembered={})["health"]


async def readiness(port: int) -> tuple[int, str]:
    url = f"http://127.0.0.1:{port}/readyz"
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status, await response.text()
    except aiohttp.ClientError:
        return 0, ""


@pytest.mark.requirement("P9")
@pytest.mark.parametrize("server", ["broker", "database"])
@pytest.mark.parametrize(
    ("ended", "names", "words"),
    [
        (EXPIRED, ("127.0.0.1",), "has expired on 2"),
        (None, OTHER_HOST, "names another host: broker.example, and not 127.0.0.1."),
    ],
    ids=["expired", "wrong host"],
)
async def test_readiness_names_a_bad_certificate_until_it_is_replaced(
    tls: TlsServers,
    port: int,
    server: str,
    ended: timedelta | None,
    names: tuple[str, ...],
    words: str,
) -> None:
    bad = tls.authority.issue("bad", names=names, ended=ended)
    if server == "broker":
        tls.use_in_broker(bad)
    else:
        await tls.use_in_database(bad)
    await until(lambda: refuses(tls), what="the bad certificate")

    async def named() -> bool:
        status, answer = await readiness(port)
        return status == 503 and f"[-] {server}: The certificate of the {server} {words}" in answer

    async def ready() -> bool:
        return await readiness(port) == (200, "[+] broker\n[+] database\n")

    async with starting_service(tls, port):
        await until(named, what=words)
        tls.use_in_broker(tls.good)
        await tls.use_in_database(tls.good)
        await until(ready, what="a ready service")


@pytest.mark.requirement("P9")
async def test_readiness_warns_of_a_broker_that_is_not_verified(tls: TlsServers, port: int) -> None:
    url = tls.amqp_url(no_verify_ssl="1")

    async def warned() -> bool:
        status, answer = await readiness(port)
        return status == 200 and (
            "[!] broker link: The certificate of the broker at 127.0.0.1 is not verified" in answer
        )

    async with starting_service(tls, port, HAREBELL_AMQP_URL=url):
        await until(warned, what="the warning")


async def doctor(tls: TlsServers, **environment: str) -> tuple[int, dict[str, list[str]]]:
    """Return the exit code of `harebell doctor`, and the results and texts of each check."""
    variables = {
        "HAREBELL_AMQP_URL": tls.amqp_url(),
        "HAREBELL_DATABASE_URL": tls.database_url(),
    }
    done = await harebell("doctor", "-o", "json", **(variables | environment))
    found: dict[str, list[str]] = {}
    for row in json.loads(done.output):
        found.setdefault(row["check"], []).append(f"{row['result']}: {row['text']}")
    return done.code, found


@pytest.mark.long
@pytest.mark.requirement("P9")
async def test_doctor_names_the_certificates_that_end(tls: TlsServers) -> None:
    connection = await connect(tls.amqp_url(), name="test", properties={})
    async with connection:
        await declare.declare(connection, SYSTEM)
    await migrate(tls.database_url())
    code, found = await doctor(tls)

    assert code == 0, found
    assert found["broker link"] == ["ok: The broker accepts the login."]
    assert found["database link"] == ["ok: The database accepts the login."]
    assert found["broker certificate"][0].endswith("in 29 days.")
    assert found["database certificate"][0].endswith("in 29 days.")
    assert found["clock"][0].startswith("ok: ")
    assert found["topology"] == ["ok: The broker has every exchange and queue."]

    tls.use_in_broker(tls.authority.issue("old", ended=EXPIRED))
    await until(lambda: refuses(tls), what="the expired certificate")
    code, found = await doctor(tls)

    assert code == 1
    assert "has expired on 2" in found["broker certificate"][0]
    assert found["broker link"][-1].startswith("failed: The certificate of the broker has expired")
    assert found["database link"] == ["ok: The database accepts the login."]


@pytest.fixture
def stack(tls: TlsServers, tmp_path: Path) -> Iterator[Stack]:
    with Stack.open(tls.servers, tmp_path / "stack") as opened:
        yield opened


@pytest.mark.measures
@pytest.mark.requirement("P9")
@pytest.mark.long
async def test_rotation_of_all_certificates_delays_no_run(
    tls: TlsServers, stack: Stack, target: Target
) -> None:
    client = tls.authority.issue("client")
    pair = {"certfile": str(client.certificate), "keyfile": str(client.key)}
    broker_url = tls.amqp_url(urlsplit(stack.amqp_url).path, **pair)
    role_pair = f"&sslcert={client.certificate}&sslkey={client.key}"
    await tls.use_in_database(tls.good)
    for kind, number in ServiceCounts().members():
        role = as_role(stack.database_url, kind) + role_pair
        stack.start_one(kind, number, HAREBELL_AMQP_URL=broker_url, HAREBELL_DATABASE_URL=role)
    async with stack.tenant("acme") as acme:
        for number in range(SCHEDULES):
            await acme.put(f"k{number}", {"every": "1s"}, target.http("ok"))
        await acme.until_runs(3 * SCHEDULES, "succeeded")

        rotated_at = now()
        client.replace_by(tls.authority.issue("client"))
        new = tls.authority.issue("new")
        tls.use_in_broker(new)
        await tls.use_in_database(new)
        await until(lambda: presents(tls, new), what="the new certificates")
        done = len(await acme.runs("succeeded"))
        await acme.until_runs(done + 10 * SCHEDULES, "succeeded")
        lateness = await acme.ledger.fetch(LATENESS, rotated_at)

    assert len(lateness) >= 10 * SCHEDULES
    assert max(row["late"] for row in lateness) < MAX_LATENESS


async def presents(tls: TlsServers, pair: Pair) -> bool:
    """Return whether both servers send the certificate of `pair`."""
    number = pair.certificate.stem
    servers = (
        TlsServer.of_broker(URL(tls.amqp_url())),
        *read_database_url(tls.database_url()).servers,
    )
    found = [await read_certificate(server) for server in servers]
    return all(each is not None and int(each["serialNumber"], 16) == int(number) for each in found)
