"""A wait for a condition of another process, which sends no notification."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

WAIT_TIMEOUT: Final = 30.0  # seconds, for a condition that an idle machine reaches within a second
POLL_INTERVAL: Final = 0.05  # seconds between two checks of a condition

T = TypeVar("T")


async def until(
    condition: Callable[[], Awaitable[T]], *, within: float = WAIT_TIMEOUT, what: str = "it"
) -> T:
    """Return the first true result of `condition`, or raise after `within` seconds."""
    result = await condition()
    try:
        async with asyncio.timeout(within):
            while not result:
                await asyncio.sleep(POLL_INTERVAL)
                result = await condition()
    except TimeoutError:
        raise AssertionError(f"{what} did not occur within {within:g} s: {result}") from None
    return result
