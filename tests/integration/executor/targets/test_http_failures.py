"""Integration tests of failed connections: one attempt is one call and ends in time."""

import asyncio
import socket
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from tests.fakes.attempts import attempt, no_keys
from tests.fakes.target_connections import amqp_targets
from tests.integration.executor.targets.servers import (
    LOOPBACK,
    UNRESTRICTED,
    Conversation,
    RawServer,
    TableResolver,
)
from tests.rig.listener import listening

from harebell.contract.message import parse
from harebell.contract.target import HttpCall, HttpTarget
from harebell.domain.retry import Failure
from harebell.domain.tenant_policy import TenantPolicies
from harebell.domain.url_policy import Egress
from harebell.executor.targets.attempt import Delegated, Success, TargetOutcome
from harebell.executor.targets.call import Targets, call_target
from harebell.executor.targets.http import HttpTargets
from harebell.executor.targets.secret_values import SecretResolver
from harebell.executor.targets.task import TaskTargets
from harebell.runtime.clock import monotonic
from harebell.runtime.secret_files import SecretFiles

SHORT = 0.3  # seconds
LONG = 10.0


async def call(
    http: HttpTargets, url: str, seconds: float = LONG, **fields: object
) -> TargetOutcome:
    async def unused(*_: object, **__: object) -> None:
        raise AssertionError

    targets = Targets(
        http=http,
        amqp=amqp_targets(unused),
        task=TaskTargets({}),
        secrets=SecretResolver(SecretFiles(None)),
        signer=no_keys(),
    )
    target = HttpTarget(http=parse(HttpCall, {"url": url, **fields}))
    outcome = await call_target(target, attempt(), targets, seconds=seconds)
    assert not isinstance(outcome, Delegated)
    return outcome


def code_of(outcome: TargetOutcome) -> str:
    assert isinstance(outcome, Failure)
    assert outcome.retryable
    return outcome.code


def sends(*parts: bytes, pause: float = 0.0) -> Conversation:
    async def conversation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause)

    return conversation


async def silence(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()  # until the client closes the connection


async def test_outcome_is_a_timeout_when_the_server_does_not_respond(
    http: HttpTargets, raw_server: RawServer
) -> None:
    raw_server.conversation = silence
    started = monotonic()

    outcome = await call(http, raw_server.url, SHORT)

    assert outcome == Failure("timeout", "The attempt did not end within 0.3 s.")
    assert SHORT <= monotonic() - started < 2


@pytest.mark.requirement("S84")
@pytest.mark.parametrize(
    "parts",
    [
        [bytes([each]) for each in b"HTTP/1.1 200 OK"],
        [b"HTTP/1.1 103 Early Hints\r\n", *[b"A: b\r\n"] * 1000],
    ],
    ids=["status line", "interim response"],
)
async def test_outcome_is_a_timeout_when_no_status_line_arrives(
    http: HttpTargets, raw_server: RawServer, parts: list[bytes]
) -> None:
    raw_server.conversation = sends(*parts, pause=0.05)

    assert code_of(await call(http, raw_server.url, SHORT)) == "timeout"


@pytest.mark.parametrize(
    "parts",
    [
        [b"HTTP/1.1 200 OK\r\n", *[b"A: b\r\n"] * 1000],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", *[b"x"] * 1000],
    ],
    ids=["headers", "body"],
)
async def test_status_line_decides_when_the_rest_is_slow(
    http: HttpTargets, raw_server: RawServer, parts: list[bytes]
) -> None:
    raw_server.conversation = sends(*parts, pause=0.02)

    assert await call(http, raw_server.url, SHORT) == Success(200)
    assert raw_server.calls == 1


async def test_failed_response_has_no_excerpt_when_its_body_is_slow(
    http: HttpTargets, raw_server: RawServer
) -> None:
    head = b"HTTP/1.1 404 Not Found\r\nContent-Length: 1000\r\n\r\n"
    raw_server.conversation = sends(head, *[b"x"] * 1000, pause=0.02)

    assert await call(http, raw_server.url) == Failure(
        "http_404", "HTTP 404", retryable=False, http_status=404
    )


OK = b"HTTP/1.1 200 OK\r\n"
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n"
LARGE = b"Content-Security-Policy: " + b"a" * 9_000 + b"\r\n"


@pytest.mark.parametrize(
    ("response", "status"),
    [
        (OK + LARGE + b"Content-Length: 0\r\n\r\n", 200),
        (OK + b"A: " + b"a" * 70_000 + b"\r\nContent-Length: 0\r\n\r\n", 200),
        (OK + b"A: b\r\n" * 20_000 + b"Content-Length: 0\r\n\r\n", 200),
        (b"HTTP/1.1 200 " + b"O" * 70_000 + b"\r\n\r\n", 200),
        (b"HTTP/1.1 200\r\n\r\n", 200),
        (b"HTTP/1.0 201 Created\r\n\r\nbody", 201),
        (NO_CONTENT + b"\r\nbody", 204),
        (NO_CONTENT + b"Content-Length: 4\r\n\r\nbody", 204),
        (OK + b"Content-Length: 2\r\n\r\nbody", 200),
        (OK + b"Content-Length: 2\r\n\r\nOKHTTP/1.1 500 No\r\n\r\n", 200),
        (OK + b"Content-Length: 9\r\n\r\nx", 200),
        (OK + b"Content-Length: 9\r\nContent-Length: 8\r\n\r\nx", 200),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 200),
        (OK + b"a header without a colon\r\n\r\n", 200),
        (OK + b"A\x00: b\r\n\r\n", 200),
        (OK + b"Content-", 200),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK + b"no header\r\n\r\n", 200),
    ],
)
async def test_success_needs_only_the_status_line(
    http: HttpTargets, raw_server: RawServer, response: bytes, status: int
) -> None:
    raw_server.conversation = sends(response)

    outcome = await call(http, raw_server.url)

    assert isinstance(outcome, Success)
    assert outcome.status == status
    assert raw_server.calls == 1


@pytest.mark.parametrize(("status", "retryable"), [(404, False), (503, True), (302, False)])
async def test_failure_needs_only_the_status_line(
    http: HttpTargets, raw_server: RawServer, status: int, *, retryable: bool
) -> None:
    raw_server.conversation = sends(f"HTTP/1.1 {status} No\r\nno header\r\n\r\n".encode())

    assert await call(http, raw_server.url) == Failure(
        f"http_{status}", f"HTTP {status}", retryable=retryable, http_status=status
    )


async def test_wait_of_a_failure_with_large_headers_is_kept(
    http: HttpTargets, raw_server: RawServer
) -> None:
    head = b"HTTP/1.1 503 No\r\nRetry-After: 7\r\n" + LARGE + b"Content-Length: 0\r\n\r\n"
    raw_server.conversation = sends(head)

    outcome = await call(http, raw_server.url)

    assert isinstance(outcome, Failure)
    assert outcome.retry_after == timedelta(seconds=7)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 Connection established\r\n\r\n", b""])
async def test_status_of_a_proxy_is_not_the_status_of_the_target(
    raw_server: RawServer, answer: bytes
) -> None:
    raw_server.conversation = sends(answer, b"no TLS")
    policies = TenantPolicies.unrestricted()
    async with HttpTargets(Egress(LOOPBACK), policies, proxy=raw_server.url) as http:
        outcome = await call(http, "https://a.example/")

    assert isinstance(outcome, Failure)
    assert outcome.retryable


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "POST"])
@pytest.mark.parametrize("response", [b"", b"HTTP/1.1 2"])
async def test_attempt_makes_one_call_when_the_connection_is_lost(
    http: HttpTargets, raw_server: RawServer, method: str, response: bytes
) -> None:
    raw_server.conversation = sends(response)

    assert code_of(await call(http, raw_server.url, method=method)) == "connection_lost"
    assert raw_server.calls == 1


async def test_response_is_bad_when_it_is_not_http(
    http: HttpTargets, raw_server: RawServer
) -> None:
    raw_server.conversation = sends(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")

    assert code_of(await call(http, raw_server.url)) == "bad_response"


async def test_connection_fails_when_no_server_listens(http: HttpTargets) -> None:
    with socket.socket() as bound:  # without `listen`
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"

        assert code_of(await call(http, url)) == "connect_failed"


async def test_resolution_fails_when_the_name_does_not_exist() -> None:
    async with HttpTargets(Egress(LOOPBACK), UNRESTRICTED, resolver=TableResolver({})) as http:
        assert code_of(await call(http, "http://nowhere.example/")) == "dns_failed"


async def test_tls_fails_when_the_certificate_is_self_signed(
    http: HttpTargets, raw_server: RawServer
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(Path(__file__).parent / "test_self_signed.pem")

    async with listening(raw_server.handle, tls=context) as port:
        outcome = await call(http, f"https://127.0.0.1:{port}")

    assert code_of(outcome) == "tls_failed"
    assert raw_server.calls == 0


async def test_calls_succeed_when_the_server_closes_each_connection(
    http: HttpTargets, raw_server: RawServer
) -> None:
    raw_server.conversation = sends(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    outcomes = [await call(http, raw_server.url) for _ in range(20)]

    assert outcomes == [Success(200)] * 20


async def test_cancelled_call_raises(http: HttpTargets, raw_server: RawServer) -> None:
    raw_server.conversation = silence
    running = asyncio.create_task(call(http, raw_server.url))
    await asyncio.sleep(0.05)
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
