"""Integration tests of one call of a target, which ends in time and with an outcome."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import aio_pika
import pytest
from tests.fakes.attempts import attempt, no_keys
from tests.fakes.target_connections import amqp_targets
from tests.integration.executor.targets.servers import HttpServer

from harebell.contract.target import (
    AmqpMessage,
    AmqpTarget,
    HttpCall,
    HttpTarget,
    TaskCall,
    TaskTarget,
)
from harebell.domain.retry import Failure
from harebell.executor.targets.attempt import Success
from harebell.executor.targets.call import Targets, call_target
from harebell.executor.targets.http import HttpTargets
from harebell.executor.targets.secret_values import SecretResolver
from harebell.executor.targets.task import TaskTargets, tasks_of
from harebell.executor.tasks import echo, sleep
from harebell.runtime.secret_files import SecretFiles

SHORT = 0.1  # seconds
LONG = 10.0
SLEEP = TaskTarget(task=TaskCall(name="sleep", args={"seconds": LONG}))


class Exchange:
    """An exchange that confirms each message, except messages to the exchange `broken`."""

    def __init__(self) -> None:
        self.published: list[tuple[str, str, bytes]] = []

    async def publish(
        self,
        exchange: str,
        routing_key: str,
        message: aio_pika.Message,
        *,
        timeout: float,  # noqa: ARG002, ASYNC109  # as in `Connection.publish`
    ) -> None:
        if exchange == "broken":
            raise ZeroDivisionError("of the executor")
        self.published.append((exchange, routing_key, message.body))


@pytest.fixture
def exchange() -> Exchange:
    return Exchange()


@pytest.fixture
def gate() -> threading.Event:
    return threading.Event()


@pytest.fixture
async def targets(
    http: HttpTargets, exchange: Exchange, gate: threading.Event
) -> AsyncIterator[Targets]:
    def wait(_: dict[str, Any]) -> None:
        gate.wait()

    task = TaskTargets(tasks_of({"echo": echo, "sleep": sleep, "wait": wait}), threads=1)
    yield Targets(
        http=http,
        amqp=amqp_targets(exchange.publish),
        task=task,
        secrets=SecretResolver(SecretFiles(None)),
        signer=no_keys(),
    )
    gate.set()
    task.close()


async def test_call_succeeds_for_each_kind_of_target(
    targets: Targets, server: HttpServer, exchange: Exchange
) -> None:
    http = HttpTarget(http=HttpCall(url=server.url))
    amqp = AmqpTarget(amqp=AmqpMessage(exchange="acme", routing_key="key", text="x"))
    task = TaskTarget(task=TaskCall(name="echo", args={"a": 1}))

    outcomes = [
        await call_target(target, attempt(), targets, seconds=LONG) for target in (http, amqp, task)
    ]

    assert outcomes == [Success(200), Success(), Success(result='{"a":1}')]
    assert len(server.received) == 1
    assert exchange.published == [("acme", "key", b"x")]


async def test_async_task_is_cancelled_at_the_timeout(targets: Targets) -> None:
    assert await call_target(SLEEP, attempt(), targets, seconds=SHORT) == Failure(
        "timeout", "The attempt did not end within 0.1 s."
    )


async def test_synchronous_task_keeps_its_thread_after_the_timeout(
    targets: Targets, gate: threading.Event
) -> None:
    target = TaskTarget(task=TaskCall(name="wait"))

    first = await call_target(target, attempt(), targets, seconds=SHORT)
    second = await call_target(
        target, attempt(), targets, seconds=SHORT
    )  # the only thread is in use
    gate.set()
    third = await call_target(target, attempt(), targets, seconds=LONG)

    assert [first, second] == [Failure("timeout", "The attempt did not end within 0.1 s.")] * 2
    assert third == Success()


async def test_unexpected_error_is_a_failed_attempt(targets: Targets) -> None:
    target = AmqpTarget(amqp=AmqpMessage(exchange="broken"))

    outcome = await call_target(target, attempt(), targets, seconds=LONG)

    assert outcome == Failure("target_error", "ZeroDivisionError: of the executor")


async def test_cancelled_attempt_has_no_outcome(targets: Targets) -> None:
    running = asyncio.create_task(call_target(SLEEP, attempt(), targets, seconds=LONG))
    await asyncio.sleep(0)
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
