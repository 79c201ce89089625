"""TODO: describe this module."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import structlog

from harebell.contract.errors import Transient

T = TypeVar("T")
log = structlog.get_logger()

FIRST_PAUSE: Final = 0.1  # seconds before a handler is tried again
LONGEST_PAUSE: Final = 5.0


def backoff_delay(tries: int) -> float:
    """Seconds before try `tries + 1`: doubling, spread, bounded."""
    full = min(FIRST_PAUSE * 2.0 ** min(tries, 10), LONGEST_PAUSE)
    return full * random.uniform(0.5, 1.0)  # noqa: S311  # spread, not secrecy


async def retry_until_available(stop: asyncio.Event, call: Callable[[], Awaitable[T]]) -> T | None:
    """Until it succeeds, or None when stopped first."""
    tries = 0
    while not stop.is_set():
        try:
            return await call()
        except Transient as error:
            log.warning("waiting", error=error.code, reason=error.reason)
            await asyncio.sleep(backoff_delay(tries))
            tries += 1
    return None
