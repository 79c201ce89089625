"""Integration tests of HTTP requests and of the outcomes of their responses."""

import base64
import gzip
from datetime import timedelta

import pytest
from aiohttp import web
from tests.fakes.attempts import attempt
from tests.integration.executor.targets.servers import SECONDS, HttpServer

from harebell.contract.message import parse
from harebell.contract.target import HttpCall
from harebell.domain.retry import Failure
from harebell.executor.targets.attempt import MAX_EXCERPT, Success, TargetOutcome
from harebell.executor.targets.http import MAX_BODY_BYTES, HttpTargets

EVERY_BYTE = bytes(range(256))


async def call(http: HttpTargets, url: str, **fields: object) -> TargetOutcome:
    return await http.call(parse(HttpCall, {"url": url, **fields}), attempt(), SECONDS)


@pytest.mark.requirement("S16")
@pytest.mark.parametrize(
    ("payload", "body", "content_type"),
    [
        (
            {"json": {"b": 1, "a": ["é", None]}},
            '{"b":1,"a":["é",null]}'.encode(),
            "application/json",
        ),
        ({"json": None}, b"null", "application/json"),
        ({"text": "a\r\nb é"}, b"a\r\nb \xc3\xa9", "text/plain; charset=utf-8"),
        ({"text": ""}, b"", "text/plain; charset=utf-8"),
        (
            {"base64": base64.b64encode(EVERY_BYTE).decode()},
            EVERY_BYTE,
            "application/octet-stream",
        ),
        ({}, b"", None),
    ],
)
async def test_body_arrives_unchanged(
    http: HttpTargets,
    server: HttpServer,
    payload: dict[str, object],
    body: bytes,
    content_type: str | None,
) -> None:
    assert await call(http, server.url, **payload) == Success(200)

    (received,) = server.received
    assert received.body == body
    assert received.headers.get("Content-Type") == content_type
    assert received.headers["Content-Length"] == str(len(body))


@pytest.mark.requirement("S19")
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"])
async def test_request_has_the_method_and_the_path_of_the_target(
    http: HttpTargets, server: HttpServer, method: str
) -> None:
    await call(http, f"{server.url}/a%2Fb?x=%20y&x=1#part", method=method)

    assert server.received[0].method == method
    assert server.received[0].path == "/a%2Fb?x=%20y&x=1"


@pytest.mark.requirement("S78")
async def test_request_has_the_headers_of_the_attempt_and_of_the_user(
    http: HttpTargets, server: HttpServer
) -> None:
    await call(http, server.url, headers={"X-Region": "eu", "user-agent": "acme"})

    headers = server.received[0].headers
    assert dict(headers).items() >= attempt().headers().items()
    assert headers["X-Region"] == "eu"
    assert headers.getall("User-Agent") == ["acme"]


@pytest.mark.requirement("ASK-3")
async def test_request_of_a_replay_has_the_replay_number(
    http: HttpTargets, server: HttpServer
) -> None:
    for replay_number in (0, 2):
        await http.call(HttpCall(url=server.url), attempt(replay_number=replay_number), SECONDS)

    assert [each.headers.get("Harebell-Replay") for each in server.received] == [None, "2"]


async def test_headers_of_the_attempt_override_forged_headers(
    http: HttpTargets, server: HttpServer
) -> None:
    forged = HttpCall.model_construct(
        url=server.url, headers={"idempotency-key": "mine", "HAREBELL-RUN-ID": "mine"}
    )

    await http.call(forged, attempt(), SECONDS)

    headers = server.received[0].headers
    assert headers.getall("Idempotency-Key") == [attempt().ticket.run_id]
    assert headers.getall("Harebell-Run-Id") == [attempt().ticket.run_id]


@pytest.mark.requirement("S19")
@pytest.mark.parametrize("status", [200, 204, 301, 400, 404, 408, 429, 500, 503])
async def test_outcome_depends_on_the_status(
    http: HttpTargets, server: HttpServer, status: int
) -> None:
    async def respond(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=None if status == 204 else "because")

    server.respond = respond

    outcome = await call(http, server.url)

    retryable = status in {408, 429, 500, 503}
    assert outcome == (
        Success(status, "because" if status == 200 else None)
        if status < 300
        else Failure(
            f"http_{status}", f"HTTP {status}: because", retryable=retryable, http_status=status
        )
    )


async def test_failure_has_the_wait_of_retry_after(http: HttpTargets, server: HttpServer) -> None:
    async def respond(_: web.Request) -> web.StreamResponse:
        return web.Response(status=429, headers={"Retry-After": "7"})

    server.respond = respond

    outcome = await call(http, server.url)

    assert isinstance(outcome, Failure)
    assert outcome.retry_after == timedelta(seconds=7)


async def test_long_response_is_truncated(http: HttpTargets, server: HttpServer) -> None:
    written = 0

    async def respond(request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse()
        await response.prepare(request)
        while written < 1000 * MAX_BODY_BYTES:
            await response.write(b"x" * MAX_BODY_BYTES)
            written += MAX_BODY_BYTES
        return response

    server.respond = respond

    assert await call(http, server.url) == Success(200, "x" * MAX_EXCERPT)
    assert written < 1000 * MAX_BODY_BYTES


async def test_compressed_response_is_not_decompressed(
    http: HttpTargets, server: HttpServer
) -> None:
    async def respond(_: web.Request) -> web.StreamResponse:
        bomb = gzip.compress(bytes(8 * 1024 * 1024))
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    server.respond = respond

    assert await call(http, server.url) == Success(200)
    assert server.received[0].headers["Accept-Encoding"] == "identity"


async def test_cookies_are_not_sent_back(http: HttpTargets, server: HttpServer) -> None:
    async def respond(_: web.Request) -> web.StreamResponse:
        response = web.Response()
        response.set_cookie("session", "1")
        return response

    server.respond = respond

    await call(http, server.url)
    await call(http, server.url)

    assert all("Cookie" not in received.headers for received in server.received)


async def test_proxy_of_the_environment_is_not_used(
    http: HttpTargets, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    assert await call(http, server.url) == Success(200)


async def test_request_that_cannot_be_written_is_never_retried(
    http: HttpTargets, server: HttpServer
) -> None:
    forged = HttpCall(url=server.url).model_copy(update={"headers": {"X-Name": "a\nb"}})

    outcome = await http.call(forged, attempt(), SECONDS)

    assert isinstance(outcome, Failure)
    assert (outcome.code, outcome.retryable) == ("invalid_request", False)
    assert server.received == []
