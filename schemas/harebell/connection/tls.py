"""Encrypted links: the faults of a certificate in words, and the weaknesses of an AMQP URL."""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any, Final

from yarl import URL

BAD_CERTIFICATE: Final = "bad_certificate"  # the code of BrokerUnavailable, DatabaseUnavailable
READ_TIMEOUT: Final = 3.0  # seconds to read the certificate of a server
DEFAULT_PORTS: Final = {"amqp": 5672, "amqps": 5671}
POSTGRESQL_TLS_REQUEST: Final = bytes.fromhex("0000000804d2162f")
POSTGRESQL_ACCEPTS: Final = b"S"

# The codes of OpenSSL for a certificate that cannot be verified, as in its x509_vfy.h.
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_OTHER_NAMES: Final = (62, 64)  # of a host, of an IP address
_IGNORE_TIME: Final = 0x20_0000  # X509_V_FLAG_NO_CHECK_TIME, which the module ssl does not name
_MAX_CAUSES: Final = 10  # of an error, with the error itself


class CertificateFault(ConnectionError):
    """A certificate that prevents a connection. The text names the server and the reason."""


@dataclass(frozen=True, kw_only=True)
class TlsServer:
    """A server with TLS, and the files that its clients need."""

    title: str  # in sentences: broker, database
    host: str
    port: int
    cafile: str | None = None
    certfile: str | None = None
    keyfile: str | None = None
    requests_tls: bool = False  # PostgreSQL begins TLS after a request

    @classmethod
    def of_broker(cls, url: URL) -> "TlsServer":
        return cls(
            title="broker",
            host=url.host or "",
            port=url.port or DEFAULT_PORTS[url.scheme],
            cafile=url.query.get("cafile"),
            certfile=url.query.get("certfile"),
            keyfile=url.query.get("keyfile"),
        )


def is_loopback(host: str | None) -> bool:
    """Return whether a host of a URL is this machine. A path is a Unix socket."""
    if not host or host.startswith("/") or host == "localhost":
        return True
    with suppress(ValueError):
        return ip_address(host.strip("[]")).is_loopback
    return False


def broker_weaknesses(urls: Sequence[URL]) -> list[str]:
    """Return the weaknesses of the links to the nodes of a broker, each as a sentence."""
    plain = sorted({str(url.host) for url in urls if _is_plain(url)})
    unverified = sorted({str(url.host) for url in urls if _is_unverified(url)})
    found = [f"The link to the broker at {host} is not encrypted: use amqps." for host in plain]
    return found + [
        f"The certificate of the broker at {host} is not verified: remove no_verify_ssl."
        for host in unverified
    ]


def _is_plain(url: URL) -> bool:
    return url.scheme == "amqp" and not is_loopback(url.host)


def _is_unverified(url: URL) -> bool:
    return url.scheme == "amqps" and url.query.get("no_verify_ssl", "0") != "0"


def client_context(server: TlsServer) -> ssl.SSLContext:
    """Return a context that verifies the chain and the name of the server.

    Without `cafile`, the authorities of the system apply. Raise `OSError` for an unusable file.
    """
    context = ssl.create_default_context(cafile=server.cafile)
    if server.certfile:
        context.load_cert_chain(server.certfile, server.keyfile)
    return context


async def certificate_fault(error: BaseException, server: TlsServer) -> CertificateFault | None:
    """Return the fault of a certificate in words, or None if no certificate caused the error.

    A second handshake, which ignores the time and the name, reads the facts of the certificate.
    """
    cause = _ssl_cause(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return CertificateFault(_describe(cause, server, await read_certificate(server)))
    if cause is not None and "ALERT" in (cause.reason or ""):
        alert = (cause.reason or "").rpartition("ALERT_")[2].lower().replace("_", " ")
        reason = f"The {server.title} rejects the certificate of this client: {alert}."
        return CertificateFault(reason)
    return None


def _ssl_cause(error: BaseException) -> ssl.SSLError | None:
    current: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if current is None or isinstance(current, ssl.SSLError):
            return current
        current = current.__cause__ or current.__context__
    return None


async def read_certificate(server: TlsServer) -> Mapping[str, Any] | None:
    """Return the certificate of a server, which an authority of the client has signed.

    The certificate may have expired and may name another host. Return None if the server does not
    answer in `READ_TIMEOUT` or if another authority has signed the certificate.
    """
    with suppress(OSError, EOFError):  # TimeoutError and ssl.SSLError are an OSError too
        context = client_context(server)
        context.check_hostname = False
        context.verify_flags |= _IGNORE_TIME
        async with asyncio.timeout(READ_TIMEOUT):
            reader, writer = await asyncio.open_connection(server.host, server.port)
            try:
                if server.requests_tls:
                    writer.write(POSTGRESQL_TLS_REQUEST)
                    if await reader.readexactly(1) != POSTGRESQL_ACCEPTS:
                        return None
                await writer.start_tls(context, server_hostname=server.host)
                certificate: Mapping[str, Any] | None = writer.get_extra_info("peercert")
                return certificate
            finally:
                writer.transport.abort()
    return None


def expires_at(certificate: Mapping[str, Any]) -> datetime:
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), UTC)


def names_of(certificate: Mapping[str, Any]) -> list[str]:
    """Return the hosts and addresses that a certificate names."""
    return [value for _, value in certificate.get("subjectAltName", ())]


def _describe(
    error: ssl.SSLCertVerificationError, server: TlsServer, certificate: Mapping[str, Any] | None
) -> str:
    subject = f"The certificate of the {server.title}"
    if error.verify_code == _EXPIRED:
        at = f" on {expires_at(certificate):%Y-%m-%d at %H:%M:%S UTC}" if certificate else ""
        return f"{subject} has expired{at}."
    if error.verify_code == _NOT_YET_VALID:
        return f"{subject} is not yet valid."
    if error.verify_code in _OTHER_NAMES:
        names = ", ".join(names_of(certificate)) if certificate else ""
        found = f"{names}, and not {server.host}" if names else f"not {server.host}"
        return f"{subject} names another host: {found}."
    return f"{subject} is not valid: {error.verify_message}."
