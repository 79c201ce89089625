"""Retries: the delay between two tries, and a loop that waits for an unavailable server."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import structlog

from harebell.contract.errors import Transient

T = TypeVar("T")
log = structlog.get_logger()

INITIAL_BACKOFF: Final = 0.1  # seconds
MAX_BACKOFF: Final = 5.0  # seconds
MAX_DOUBLINGS: Final = 10


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
