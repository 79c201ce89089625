"""HTTP targets with the CA and the client certificate of a tenant."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.fakes.attempts import attempt
from tests.integration.executor.targets.servers import LOOPBACK

from harebell.contract.message import parse
from harebell.contract.target import HttpCall
from harebell.domain.retry import Failure
from harebell.domain.tenant_policy import TenantPolicies
from harebell.domain.url_policy import Egress
from harebell.executor.targets.attempt import Success, TargetOutcome
from harebell.executor.targets.http import HttpTargets
from harebell.executor.targets.tenant_tls import TlsContexts
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


@dataclass(frozen=True)
class TlsServer:
    """A server that requires a client certificate of its CA, and the secrets of the tenant."""

    url: str
    secrets: Path


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

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(RESPONSE)
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(respond, "127.0.0.1", 0, ssl=context)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        yield TlsServer(f"https://127.0.0.1:{port}/", tmp_path / "secrets")


async def call(server: TlsServer, *fields: str) -> TargetOutcome:
    """Call the server with the secrets in these fields of `tls`, named like the fields."""
    tls = {name: {"secret": name} for name in fields}
    policies = TenantPolicies.parse({"tenants": {"default": {"tls": tls} if tls else {}}})
    contexts = TlsContexts(SecretFiles(server.secrets))
    async with HttpTargets(Egress(LOOPBACK), policies, tls=contexts) as http:
        return await http.call(parse(HttpCall, {"url": server.url, "method": "GET"}), attempt())


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
