"""Calls with secrets: the target receives each secret, and the outcome contains none."""

import base64
import logging
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.fakes.attempts import attempt, no_keys
from tests.fakes.target_connections import amqp_targets
from tests.integration.executor.targets.servers import HttpServer

from harebell.contract.message import parse
from harebell.contract.target import HttpTarget, Target, TaskTarget
from harebell.domain.retry import Failure
from harebell.executor.targets.attempt import Delegated, Success, TargetOutcome
from harebell.executor.targets.call import Targets, call_target
from harebell.executor.targets.http import HttpTargets
from harebell.executor.targets.secret_values import ELLIPSIS, SecretResolver
from harebell.executor.targets.task import TaskTargets, tasks_of
from harebell.runtime import secret_files
from harebell.runtime.secret_files import SecretFiles

SENT = "t0p-s3cret-value"
SECONDS = 10.0
PATHS = ("/ok", "/fails")
SEEN: list[Any] = []


def fail(args: dict[str, Any]) -> None:
    SEEN.append(args)
    raise ValueError(f"refused with {args!r}")


def echo(args: dict[str, Any]) -> object:
    return args


async def unused(*_: object, **__: object) -> None:
    raise ZeroDivisionError(f"defect with {SENT}")


def task(name: str, args: dict[str, Any]) -> TaskTarget:
    return parse(TaskTarget, {"task": {"name": name, "args": args}})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "default").mkdir()
    (tmp_path / "default" / "token").write_text(SENT)
    return tmp_path


async def call(
    http: HttpTargets, directory: Path, target: Target, *, shows_excerpts: bool = True
) -> TargetOutcome:
    tasks = TaskTargets(tasks_of({"fail": fail, "echo": echo}), threads=1)
    targets = Targets(
        http=http,
        amqp=amqp_targets(unused),
        task=tasks,
        secrets=SecretResolver(SecretFiles(directory)),
        signer=no_keys(),
    )
    try:
        outcome = await call_target(
            target, attempt(), targets, seconds=SECONDS, shows_excerpts=shows_excerpts
        )
        assert not isinstance(outcome, Delegated)
        return outcome
    finally:
        tasks.close()


async def echo_headers(request: web.Request) -> web.Response:
    status = 500 if request.path == "/fails" else 200
    return web.json_response(dict(request.headers), status=status)


@pytest.mark.parametrize("path", PATHS)
async def test_target_that_echoes_its_headers_reveals_nothing(
    http: HttpTargets, server: HttpServer, directory: Path, path: str
) -> None:
    server.respond = echo_headers
    headers = {"X-Any": {"secret": "token"}, "Cookie": "literal-cookie"}
    userinfo = {"user": "shop", "password": {"secret": "token"}}
    body = {"url": server.url + path, "headers": headers, "userinfo": userinfo}

    outcome = await call(http, directory, parse(HttpTarget, {"http": body}))

    basic = base64.b64encode(f"shop:{SENT}".encode()).decode()
    (received,) = server.received
    assert received.headers["X-Any"] == SENT
    assert received.headers["Authorization"] == f"Basic {basic}"
    assert '{"Host":' not in str(outcome)
    assert ELLIPSIS in str(outcome)


async def test_policy_without_excerpts_shows_nothing_of_the_answer(
    http: HttpTargets, server: HttpServer, directory: Path
) -> None:
    server.respond = echo_headers
    targets = {path: parse(HttpTarget, {"http": {"url": server.url + path}}) for path in PATHS}

    ok, fails = [await call(http, directory, targets[path], shows_excerpts=False) for path in PATHS]

    assert ok == Success(200)
    assert fails == Failure("http_500", "HTTP 500", http_status=500)


async def test_task_receives_the_secret_and_its_error_is_short(
    http: HttpTargets, directory: Path
) -> None:
    args = {"deep": [{"token": {"secret": "token"}}]}
    SEEN.clear()

    failed = await call(http, directory, task("fail", args))
    echoed = await call(http, directory, task("echo", args))

    assert SEEN == [{"deep": [{"token": SENT}]}]
    assert failed == Failure("task_failed", "ValueError: refused …")
    assert echoed == Success(result='{"deep":…')


async def test_missing_secret_prevents_the_call_and_is_retried(
    http: HttpTargets, server: HttpServer, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_files, "MAX_AGE", 0.0)
    target = parse(HttpTarget, {"http": {"url": server.url, "headers": {"X": {"secret": "later"}}}})

    missing = await call(http, directory, target)
    assert server.received == []
    (directory / "default" / "later").write_text("now")
    found = await call(http, directory, target)

    assert isinstance(missing, Failure)
    assert (missing.code, missing.retryable) == ("secret_missing", True)
    assert "'later'" in missing.message
    assert isinstance(found, Success)
    assert server.received[0].headers["X"] == "now"


async def test_defect_during_a_call_with_secrets_reveals_nothing(
    http: HttpTargets,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(*_: object, **__: object) -> TargetOutcome:
        raise ZeroDivisionError(f"defect with {SENT}")

    monkeypatch.setattr(HttpTargets, "call", broken)
    target = {"http": {"url": "http://127.0.0.1/", "headers": {"X": {"secret": "token"}}}}

    with caplog.at_level(logging.DEBUG):
        outcome = await call(http, directory, parse(HttpTarget, target))

    printed = capsys.readouterr()
    assert outcome == Failure("target_error", "ZeroDivisionError: defect w…")
    assert "target call failed" in printed.out + printed.err + caplog.text
    assert SENT not in printed.out + printed.err + caplog.text
