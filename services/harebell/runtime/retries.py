"""Retries: the delay between two tries, and loops that survive unavailable servers and defects."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NoReturn, TypeVar

import structlog

from harebell.contract.errors import Transient
from harebell.runtime import metrics

T = TypeVar("T")
log = structlog.get_logger()

INITIAL_BACKOFF: Final = 0.1  # seconds
MAX_BACKOFF: Final = 5.0  # seconds
MAX_DOUBLINGS: Final = 10
RESTART_PAUSE: Final = 5.0  # seconds between a failure of a background loop and its next start


class WriteConflict(Exception):
    """A row that another process wrote first, such as the response to the same command.

    A repeat usually finds that row. A defect can cause the same error, so nothing repeats for ever.
    """


def backoff_delay(tries: int) -> float:
    """Return the seconds to wait after `tries` failed tries.

    The delay doubles with each try up to `MAX_BACKOFF`.
    A random factor between 0.5 and 1 spreads the retries of several processes.
    """
    full = min(INITIAL_BACKOFF * 2.0 ** min(tries, MAX_DOUBLINGS), MAX_BACKOFF)
    return full * random.uniform(0.5, 1.0)  # noqa: S311  # the factor spreads load, no secret


async def retry_until_available(stop: asyncio.Event, call: Callable[[], Awaitable[T]]) -> T | None:
    """Await `call` until no `Transient` error occurs and return its result.

    Return None if `stop` is set before the first success.
    """
    tries = 0
    while not stop.is_set():
        try:
            return await call()
        except Transient as error:
            log.warning("server unavailable", error=error.code, reason=error.reason)
            await asyncio.sleep(backoff_delay(tries))
            tries += 1
    return None


async def keep_running(name: str, loop: Callable[[], Coroutine[Any, Any, None]]) -> NoReturn:
    """Start a background loop again after each error that the loop does not handle.

    A row that the loop cannot process then stops neither the service nor its other loops.
    """
    failures = metrics.LOOP_FAILURES.labels(name)  # a rate ignores the first value of a series
    while True:
        try:
            await loop()
        except Exception:  # also `Rejected`, for a row that cannot be read
            log.exception("background loop failed", loop=name)
            failures.inc()
        await asyncio.sleep(RESTART_PAUSE)
