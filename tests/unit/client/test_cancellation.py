"""A cancelled task ends, even if an error of its connection hides the cancellation."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager

import asyncpg
import pytest
from aiormq.exceptions import ChannelInvalidStateError

from harebell.connection.amqp import translate_amqp_errors
from harebell.contract.errors import BrokerUnavailable, DatabaseUnavailable, Transient
from harebell.runtime.event_wait import wait_until_set
from harebell.storage.engine import translate_db_errors

FOREVER = 3600.0  # seconds
WITHIN = 10.0  # seconds


def amqp() -> AbstractContextManager[None]:
    return translate_amqp_errors("The call failed")


CLOSED = asyncpg.InterfaceError("connection is closed")
HIDING: list[tuple[Callable[[], AbstractContextManager[None]], Exception, type[Transient]]] = [
    (amqp, ChannelInvalidStateError("closed"), BrokerUnavailable),
    (amqp, RuntimeError("closed"), BrokerUnavailable),
    (translate_db_errors, CLOSED, DatabaseUnavailable),
]


@pytest.mark.parametrize(("translate", "error", "translated"), HIDING)
async def test_cancelled_loop_ends_when_an_error_hides_the_cancellation(
    translate: Callable[[], AbstractContextManager[None]],
    error: Exception,
    translated: type[Transient],
) -> None:
    waiting, failures = asyncio.Event(), 0

    async def call() -> None:
        if not failures:
            raise error
        waiting.set()
        try:
            await asyncio.sleep(FOREVER)
        except asyncio.CancelledError:
            raise error from None

    async def loop() -> None:
        nonlocal failures
        while True:
            try:
                with translate():
                    await call()
            except translated:
                failures += 1

    task = asyncio.create_task(loop())
    await waiting.wait()
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=WITHIN)

    assert done == {task}
    assert task.cancelled()


async def test_wait_ends_with_the_event_or_after_its_time() -> None:
    event = asyncio.Event()

    assert not await wait_until_set(event, 0.001)
    event.set()
    assert await wait_until_set(event, FOREVER)


@pytest.mark.parametrize("steps", range(4))
async def test_cancellation_that_arrives_with_the_event_is_not_lost(steps: int) -> None:
    event = asyncio.Event()

    async def wait() -> None:
        await wait_until_set(event, FOREVER)
        await asyncio.sleep(FOREVER)

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    event.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task], timeout=WITHIN)

    assert task.cancelled()
