"""Bounded waits for events."""

import asyncio
from collections.abc import Sequence


async def wait_until_set(event: asyncio.Event, seconds: float) -> bool:
    """Return whether the event is set, after at most `seconds`.

    Up to Python 3.11, `asyncio.wait_for` loses a cancellation that arrives with the event. A loop
    would then continue after the stop of its service.
    """
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


async def wait_for_first(events: Sequence[asyncio.Event], seconds: float | None) -> None:
    """Wait until one of the events is set, or at most `seconds`."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
