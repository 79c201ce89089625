"""HTTP targets with the CA and the client certificate of a tenant."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.fakes.attempts import attempt
from tests.integration.executor.targets.servers import LOOPBACK, SECONDS
from tests.rig.listener import listening

from harebell.contract.message import parse
from harebell.contract.target import HttpCall
from harebell.domain.retry import Failure
from harebell.domain.tenant_policy import TenantPolicies
from harebell.domain.url_policy import Egress
from harebell.executor.targets.attempt import Success, TargetOutcome
from harebell.executor.targets.http import HttpTargets
from harebell.executor.targets.tenant_tls import MAX_ROTATION, TlsContexts
from harebell.runtime.secret_files import SecretFiles

RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Authority:
    """A CA for tests, which signs certificates for the loopback address."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def create(cls) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        return cls(key, _certificate("ca", key.public_key(), key, issuer=None))

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def pair(self, name: str) -> tuple[bytes, bytes]:
        """Return a new certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        signed = _certificate(name, key.public_key(), self.key, issuer=self.certificate)
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return signed.public_bytes(serialization.Encoding.PEM), private


def _certificate(
    name: str,
    public_key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    issuer: x509.Certificate | None,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(START)
        .not_valid_after(START + timedelta(days=36_500))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
    )
    return builder.sign(signer, hashes.SHA256())


@dataclass(frozen=True, kw_only=True)
class TlsServer:
    """A server that requires a client certificate of its CA, and the secrets of the tenant."""

    url: str
    secrets: Path
    authority: Authority
    clients: list[str] = field(default_factory=list)  # the names of their certificates

    def write(self, **files: bytes) -> None:
        """Replace secrets of the tenant."""
        for name, content in files.items():
            (self.secrets / "default" / name).write_bytes(content)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[TlsServer]:
    authority = Authority.create()
    certificate, key = authority.pair("server")
    (tmp_path / "server.pem").write_bytes(certificate + key)
    secrets = tmp_path / "secrets" / "default"
    secrets.mkdir(parents=True)
    (secrets / "ca").write_bytes(authority.pem)
    for name, content in zip(("certificate", "key"), authority.pair("client"), strict=True):
        (secrets / name).write_bytes(content)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.pem.decode())
    context.load_cert_chain(tmp_path / "server.pem")
    context.verify_mode = ssl.CERT_REQUIRED

    clients: list[str] = []

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        ((_, name),) = writer.get_extra_info("peercert")["subject"][0]
        clients.append(name)
        writer.write(RESPONSE)
        await writer.drain()

    async with listening(respond, tls=context) as port:
        url = f"https://127.0.0.1:{port}/"
        yield TlsServer(url=url, secrets=tmp_path / "secrets", authority=authority, clients=clients)


async def call(server: TlsServer, *fields: str) -> TargetOutcome:
    """Call the server with the secrets in these fields of `tls`, named like the fields."""
    tls = {name: {"secret": name} for name in fields}
    policies = TenantPolicies.parse({"tenants": {"default": {"tls": tls} if tls else {}}})
    contexts = TlsContexts(SecretFiles(server.secrets))
    async with HttpTargets(Egress(LOOPBACK), policies, tls=contexts) as http:
        return await http.call(
            parse(HttpCall, {"url": server.url, "method": "GET"}), attempt(), SECONDS
        )


async def test_call_succeeds_with_the_ca_and_the_client_certificate(server: TlsServer) -> None:
    assert await call(server, "ca", "certificate", "key") == Success(200)


@pytest.mark.parametrize("fields", [(), ("ca",), ("certificate", "key")])
async def test_call_fails_without_the_ca_or_the_client_certificate(
    server: TlsServer, fields: tuple[str, ...]
) -> None:
    outcome = await call(server, *fields)

    assert isinstance(outcome, Failure)
    assert outcome.code in {"tls_failed", "connection_lost", "connect_failed"}


@pytest.mark.parametrize("name", ["ca", "certificate", "key"])
async def test_secret_that_is_no_pem_is_retried_and_not_shown(server: TlsServer, name: str) -> None:
    (server.secrets / "default" / name).write_text("-----BEGIN x hidden")

    outcome = await call(server, "ca", "certificate", "key")

    assert isinstance(outcome, Failure)
    assert (outcome.code, outcome.retryable) == ("secret_invalid", True)
    assert "hidden" not in outcome.message


async def test_missing_secret_is_retried(server: TlsServer) -> None:
    (server.secrets / "default" / "key").unlink()

    outcome = await call(server, "ca", "certificate", "key")

    assert isinstance(outcome, Failure)
    assert (outcome.code, outcome.retryable) == ("secret_missing", True)


class ManualClock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds


ALL = {name: {"secret": name} for name in ("ca", "certificate", "key")}


@asynccontextmanager
async def calling(
    server: TlsServer, clock: ManualClock, *, proxy: str | None = None
) -> AsyncIterator[Callable[[], Awaitable[TargetOutcome]]]:
    """Yield a call with all secrets, whose files are read again at each call."""
    policies = TenantPolicies.parse({"tenants": {"default": {"tls": ALL}}})
    # A new object reads each file again. One object would keep its values for two seconds.
    contexts = TlsContexts(FreshFiles(server.secrets), now=clock.now)
    async with HttpTargets(Egress(LOOPBACK), policies, tls=contexts, proxy=proxy) as http:
        request = parse(HttpCall, {"url": server.url, "method": "GET"})
        yield lambda: http.call(request, attempt(), SECONDS)


class FreshFiles(SecretFiles):
    """The files of secrets without their cache."""

    def read(self, tenant: str, name: str) -> bytes:
        self._cache.clear()
        return super().read(tenant, name)


@pytest.mark.parametrize("first", ["certificate", "key"])
async def test_calls_succeed_while_the_pair_is_replaced_one_file_after_the_other(
    server: TlsServer, first: str
) -> None:
    pair = dict(zip(("certificate", "key"), server.authority.pair("next"), strict=True))
    async with calling(server, ManualClock()) as call_again:
        outcomes = [await call_again()]
        server.write(**{first: pair.pop(first)})
        outcomes += [await call_again() for _ in range(3)]
        server.write(**pair)
        outcomes += [await call_again() for _ in range(2)]

    assert outcomes == [Success(200)] * 6
    assert server.clients == ["client"] * 4 + ["next"] * 2


async def test_pair_that_does_not_match_is_refused_after_a_minute(server: TlsServer) -> None:
    clock = ManualClock()
    async with calling(server, clock) as call_again:
        before = await call_again()
        server.write(key=server.authority.pair("next")[1])
        during = await call_again()
        clock.seconds = MAX_ROTATION + 1
        after = await call_again()

    assert (before, during) == (Success(200), Success(200))
    assert isinstance(after, Failure)
    assert (after.code, after.retryable) == ("secret_invalid", True)


@asynccontextmanager
async def connect_proxy() -> AsyncIterator[tuple[str, list[str]]]:
    """Serve a proxy for tunnels, and yield its URL and the requested tunnels."""
    tunnels: list[str] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, address, _ = head.split(" ", 2)
        tunnels.append(f"{method} {address}")
        host, _, port = address.rpartition(":")
        to_reader, to_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            await asyncio.gather(copy(reader, to_writer), copy(to_reader, writer))
        finally:
            to_writer.close()

    async with listening(serve) as port:
        yield f"http://127.0.0.1:{port}", tunnels


@pytest.mark.requirement("P12")
async def test_https_target_is_verified_through_the_tunnel_of_a_proxy(server: TlsServer) -> None:
    address = server.url.removeprefix("https://").rstrip("/")
    async with connect_proxy() as (proxy, tunnels):
        async with calling(server, ManualClock(), proxy=proxy) as call_again:
            trusted = await call_again()
        server.write(ca=Authority.create().pem)
        async with calling(server, ManualClock(), proxy=proxy) as call_again:
            foreign = await call_again()

    assert trusted == Success(200)
    assert isinstance(foreign, Failure)
    assert foreign.code == "tls_failed"
    assert tunnels == [f"CONNECT {address}"] * 2
    assert server.clients == ["client"]
