"""`harebell doctor`: the links to both servers, their certificates, the clock and the topology."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import typer
from cryptography import x509

from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.session import CLIENT_NAME, Session
from harebell.client.connection import connect, parse_amqp_urls
from harebell.client.tls import TlsServer, broker_weaknesses, expires_at, read_certificate
from harebell.contract import __version__
from harebell.contract.errors import HarebellError
from harebell.messaging import declare
from harebell.messaging.topology.bus import SYSTEM
from harebell.runtime.database_url import DatabaseUrl, read_database_url

app = typer.Typer()

COLUMNS: Final = ("check", "result", "text")
MIN_LIFE: Final = timedelta(days=14)  # of a certificate; a shorter life is a warning
MAX_CLOCK_DIFFERENCE: Final = 1.0  # seconds between this machine and the database

TIME_AND_TLS: Final = (
    "SELECT clock_timestamp(), (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid())"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """The options of `doctor`."""

    database_url: Annotated[
        str | None,
        typer.Option(
            "--database-url",
            metavar="URL",
            envvar="HAREBELL_DATABASE_URL",
            help="Check the link to this PostgreSQL database and the clock too.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCheck:
    """The result of one check: ok, warning or failed."""

    check: str
    result: str
    text: str


@command(app, "doctor")
async def doctor(session: Session, options: DoctorOptions) -> ExitCode:
    """Check the links, the certificates, the clock and the topology.

    The exit code is 1 after a failed check. A warning changes no exit code.
    """
    findings = await _check_broker(session.amqp_url, session.now())
    if options.database_url:
        address = read_database_url(options.database_url)
        findings += await _check_database(options.database_url, address, session)
    rows = [{"check": each.check, "result": each.result, "text": each.text} for each in findings]
    session.output.print_rows(rows, COLUMNS)
    failed = any(each.result == "failed" for each in findings)
    return ExitCode.FAILED if failed else ExitCode.DONE


async def _check_broker(urls: str, now: datetime) -> list[LinkCheck]:
    nodes = parse_amqp_urls(urls)
    findings = [
        LinkCheck(check="broker link", result="warning", text=text)
        for text in broker_weaknesses(nodes)
    ]
    for node in nodes:
        if node.scheme == "amqps":
            findings += await _check_certificates(TlsServer.of_broker(node), now)
    properties = {"service": CLIENT_NAME, "version": __version__}
    try:
        name = f"{CLIENT_NAME}@{socket.gethostname()}"
        connection = await connect(urls, name=name, properties=properties)
        async with connection:
            findings.append(_ok("broker link", "The broker accepts the login."))
            problems = await declare.find_differences(connection, SYSTEM)
    except HarebellError as error:
        return [*findings, _failed("broker link", error.reason)]
    findings += [_failed("topology", problem) for problem in problems]
    if not problems:
        findings.append(_ok("topology", "The broker has every exchange and queue."))
    return findings


async def _check_database(url: str, address: DatabaseUrl, session: Session) -> list[LinkCheck]:
    # The import is here, because only two commands may load the driver of the database.
    from harebell.audit.store import connect_read_only  # noqa: PLC0415  # the reason is above

    findings = [
        LinkCheck(check="database link", result="warning", text=text)
        for text in address.weaknesses()
    ]
    try:
        async with connect_read_only(url) as connection:
            findings.append(_ok("database link", "The database accepts the login."))
            time, is_encrypted = await connection.fetchrow(TIME_AND_TLS)
            findings.append(_compare_clocks(session.now(), time))
    except HarebellError as error:
        findings.append(_failed("database link", error.reason))
        is_encrypted = True
    for server in address.servers if is_encrypted else ():
        findings += await _check_certificates(server, session.now())
    return findings


def _compare_clocks(now: datetime, time: datetime) -> LinkCheck:
    difference = (now - time).total_seconds()
    text = f"The clock of this machine differs from that of the database by {difference:.3f} s."
    result = "ok" if abs(difference) <= MAX_CLOCK_DIFFERENCE else "warning"
    return LinkCheck(check="clock", result=result, text=text)


async def _check_certificates(server: TlsServer, now: datetime) -> list[LinkCheck]:
    """Check the end of the certificates of a server and of its client."""
    check = f"{server.title} certificate"
    found = []
    certificate = await read_certificate(server)
    if certificate is None:
        text = f"The authority of {server.host} has signed no certificate that the server sends."
        found.append(LinkCheck(check=check, result="warning", text=text))
    else:
        subject = f"The certificate of {server.host}"
        found.append(_judge_life(check, subject, now=now, until=expires_at(certificate)))
    return [*found, *_check_own_certificate(server, now)]


def _check_own_certificate(server: TlsServer, now: datetime) -> Iterator[LinkCheck]:
    if not server.certfile:
        return
    check = f"own certificate for the {server.title}"
    try:
        certificate = x509.load_pem_x509_certificate(Path(server.certfile).read_bytes())
    except (OSError, ValueError) as error:
        yield _failed(check, f"The file of the certificate must be readable PEM: {error}.")
        return
    until = certificate.not_valid_after_utc
    yield _judge_life(check, f"The certificate in {server.certfile}", now=now, until=until)


def _judge_life(check: str, subject: str, *, now: datetime, until: datetime) -> LinkCheck:
    left = until - now.astimezone(UTC)
    if left <= timedelta():
        return _failed(check, f"{subject} has expired on {until:%Y-%m-%d at %H:%M:%S UTC}.")
    result = "ok" if left >= MIN_LIFE else "warning"
    text = f"{subject} expires on {until:%Y-%m-%d}, in {left.days} days."
    return LinkCheck(check=check, result=result, text=text)


def _ok(check: str, text: str) -> LinkCheck:
    return LinkCheck(check=check, result="ok", text=text)


def _failed(check: str, text: str) -> LinkCheck:
    return LinkCheck(check=check, result="failed", text=text)
