"""The http target against a real server: what is sent, and what its answers come to."""

import base64
import gzip
from datetime import timedelta

import pytest
from aiohttp import web
from tests.fakes.attempts import attempt
from tests.integration.executor.targets.servers import Server

from harebell.contract.message import parse
from harebell.contract.target import HttpCall
from harebell.domain.retry import Failure
from harebell.executor.targets.attempt import MAX_EXCERPT, Outcome, Success
from harebell.executor.targets.http import MAX_READ, HttpTargets

EVERY_BYTE = bytes(range(256))


async def call(http: HttpTargets, url: str, **fields: object) -> Outcome:
    return await http.call(parse(HttpCall, {"url": url, **fields}), attempt())


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
async def test_a_body_arrives_byte_for_byte(
    http: HttpTargets,
    server: Server,
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
async def test_the_method_and_the_path(http: HttpTargets, server: Server, method: str) -> None:
    await call(http, f"{server.url}/a%2Fb?x=%20y&x=1#part", method=method)

    assert server.received[0].method == method
    assert server.received[0].path == "/a%2Fb?x=%20y&x=1"


@pytest.mark.requirement("S78")
async def test_the_runs_headers_are_there_beside_the_users(
    http: HttpTargets, server: Server
) -> None:
    await call(http, server.url, headers={"X-Region": "eu", "user-agent": "acme"})

    headers = server.received[0].headers
    assert dict(headers).items() >= attempt().headers().items()
    assert headers["X-Region"] == "eu"
    assert headers.getall("User-Agent") == ["acme"]


async def test_what_the_contract_let_by_still_cannot_pose_as_ours(
    http: HttpTargets, server: Server
) -> None:
    forged = HttpCall.model_construct(
        url=server.url, headers={"idempotency-key": "mine", "HAREBELL-RUN-ID": "mine"}
    )

    await http.call(forged, attempt())

    headers = server.received[0].headers
    assert headers.getall("Idempotency-Key") == [attempt().ticket.run_id]
    assert headers.getall("Harebell-Run-Id") == [attempt().ticket.run_id]


@pytest.mark.requirement("S19")
@pytest.mark.parametrize("status", [200, 204, 301, 400, 404, 408, 429, 500, 503])
async def test_the_status_decides(http: HttpTargets, server: Server, status: int) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=None if status == 204 else "because")

    server.answer = answer

    outcome = await call(http, server.url)

    retryable = status in {408, 429, 500, 503}
    assert outcome == (
        Success(status, "because" if status == 200 else None)
        if status < 300
        else Failure(f"http_{status}", f"HTTP {status}: because", retryable, http_status=status)
    )


async def test_retry_after_is_heard(http: HttpTargets, server: Server) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=429, headers={"Retry-After": "7"})

    server.answer = answer

    outcome = await call(http, server.url)

    assert isinstance(outcome, Failure)
    assert outcome.retry_after == timedelta(seconds=7)


async def test_a_long_answer_is_cut(http: HttpTargets, server: Server) -> None:
    written = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse()
        await response.prepare(request)
        while written < 1000 * MAX_READ:
            await response.write(b"x" * MAX_READ)
            written += MAX_READ
        return response

    server.answer = answer

    assert await call(http, server.url) == Success(200, "x" * MAX_EXCERPT)
    assert written < 1000 * MAX_READ


async def test_a_compressed_answer_is_not_unpacked(http: HttpTargets, server: Server) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        bomb = gzip.compress(bytes(8 * 1024 * 1024))
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    server.answer = answer

    assert await call(http, server.url) == Success(200)
    assert server.received[0].headers["Accept-Encoding"] == "identity"


async def test_cookies_are_not_kept(http: HttpTargets, server: Server) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        response = web.Response()
        response.set_cookie("session", "1")
        return response

    server.answer = answer

    await call(http, server.url)
    await call(http, server.url)

    assert all("Cookie" not in received.headers for received in server.received)


async def test_proxies_of_the_environment_are_not_used(
    http: HttpTargets, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    assert await call(http, server.url) == Success(200)


async def test_credentials_given_twice_cannot_be_sent(http: HttpTargets, server: Server) -> None:
    url = server.url.replace("//", "//me:secret@")

    outcome = await call(http, url, headers={"Authorization": "Bearer x"})

    assert isinstance(outcome, Failure)
    assert (outcome.code, outcome.retryable) == ("invalid_request", False)
    assert server.received == []
