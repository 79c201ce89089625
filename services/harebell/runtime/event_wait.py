"""A bounded wait for an event."""

import asyncio


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
