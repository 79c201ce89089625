"""The links to both servers, their certificates, the clock and the topology."""

import socket
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from aio_pika.abc import AbstractConnection
from cryptography import x509
from yarl import URL

from harebell.cli.doctor.checks import UNREACHABLE, Check, failed, passed, skipped, warned
from harebell.cli.framework.session import CLIENT_NAME
from harebell.cli.topology import NO_INTAKE
from harebell.connection.amqp import connect
from harebell.connection.tls import TlsServer, broker_weaknesses, expires_at, read_certificate
from harebell.contract import __version__
from harebell.contract.errors import HarebellError
from harebell.messaging import declare
from harebell.messaging.topology.bus import SYSTEM, consumed_queues
from harebell.runtime.database_url import DatabaseUrl

MIN_LIFE: Final = timedelta(days=14)  # of a certificate; a shorter life is a warning
MAX_CLOCK_DIFFERENCE: Final = 1.0  # seconds between this machine and the database
ENCRYPT: Final = "Use an encrypted and verified link: docs/operations/security.md#encrypted-links."
RENEW: Final = "Renew the certificate, and replace its file: each connection reads it again."


async def open_broker(urls: str) -> AbstractConnection:
    """Connect to the broker. Raise `BrokerUnavailable`."""
    properties = {"service": CLIENT_NAME, "version": __version__}
    return await connect(urls, name=f"{CLIENT_NAME}@{socket.gethostname()}", properties=properties)


def release_of(connection: AbstractConnection) -> str | None:
    """Return the release that the broker names in its greeting."""
    if connection.transport is None:
        return None
    version = connection.transport.connection.server_properties.get("version")
    return version.decode() if isinstance(version, bytes | bytearray) else str(version)


async def check_broker_certificates(nodes: Sequence[URL], now: datetime) -> list[Check]:
    """Return the weak links to the broker, and the ends of the certificates."""
    findings = [warned("broker link", text, ENCRYPT) for text in broker_weaknesses(nodes)]
    for node in nodes:
        if node.scheme == "amqps":
            findings += await check_certificates(TlsServer.of_broker(node), now)
    return findings


async def check_topology(connection: AbstractConnection) -> list[Check]:
    """Return each part of the topology that the broker lacks or has differently."""
    problems = await declare.find_differences(connection, SYSTEM)
    if not problems:
        return [passed("topology", "The broker has every exchange and queue.")]
    remedy = "Import the definitions file, or delete the part that differs after it is empty."
    return [failed("topology", problem, remedy) for problem in problems]


async def check_intake(connection: AbstractConnection, tenants: Sequence[str]) -> list[Check]:
    """Return each intake queue and query queue of these tenants that has no consumer."""
    if not tenants:
        return []
    queues = [each.name for tenant in tenants for each in consumed_queues(tenant)]
    unconsumed = await declare.find_unconsumed(connection, queues)
    if not unconsumed:
        return [passed("intake", "No queue of these tenants is without an intake.")]
    remedy = "Name the tenant in the setting, and check that an intake runs."
    return [failed("intake", f"{queue}: {NO_INTAKE}", remedy) for queue in unconsumed]


def database_weaknesses(address: DatabaseUrl) -> list[Check]:
    """Return the weak links to the database."""
    return [warned("database link", text, ENCRYPT) for text in address.weaknesses()]


def compare_clocks(now: datetime, time: datetime) -> Check:
    """Return the verdict about the difference of two readings."""
    difference = (now - time).total_seconds()
    text = f"The clock of this machine differs from that of the database by {difference:.3f} s."
    if abs(difference) <= MAX_CLOCK_DIFFERENCE:
        return passed("clock", text)
    return warned("clock", text, "Synchronise the clocks of both machines, such as with chrony.")


async def check_certificates(server: TlsServer, now: datetime) -> list[Check]:
    """Check the end of the certificates of a server and of its client."""
    check = f"{server.title} certificate"
    certificate = await read_certificate(server)
    if certificate is None:
        text = f"The authority of {server.host} has signed no certificate that the server sends."
        found = warned(check, text, "Compare the file of the authority with that of the server.")
    else:
        subject = f"The certificate of {server.host}"
        found = judge_life(check, subject, now=now, until=expires_at(certificate))
    return [found, *_check_own_certificate(server, now)]


def _check_own_certificate(server: TlsServer, now: datetime) -> Iterator[Check]:
    if not server.certfile:
        return
    check = f"own certificate for the {server.title}"
    try:
        certificate = x509.load_pem_x509_certificate(Path(server.certfile).read_bytes())
    except (OSError, ValueError) as error:
        text = f"The file of the certificate must be readable PEM: {error}."
        yield failed(check, text, "Correct the parameter certfile or sslcert of the URL.")
        return
    until = certificate.not_valid_after_utc
    yield judge_life(check, f"The certificate in {server.certfile}", now=now, until=until)


def judge_life(check: str, subject: str, *, now: datetime, until: datetime) -> Check:
    """Return the verdict about a certificate that is valid until a time."""
    left = until - now.astimezone(UTC)
    if left <= timedelta():
        return failed(check, f"{subject} has expired on {until:%Y-%m-%d at %H:%M:%S UTC}.", RENEW)
    text = f"{subject} expires on {until:%Y-%m-%d}, in {left.days} days."
    return passed(check, text) if left >= MIN_LIFE else warned(check, text, RENEW)


def unreachable(check: str, error: HarebellError) -> Check:
    """Return the failed check of a link."""
    return failed(check, error.reason, UNREACHABLE)


def without_link(checks: Sequence[str], link: str) -> list[Check]:
    """Return checks that need a link which does not work."""
    text = f"This check needs the {link}."
    return [skipped(each, text, f"Repair the {link} first.") for each in checks]
