"""The end of a listener closes each connection, also one whose handler has not started."""

import asyncio
import gc
import socket
import warnings

import pytest
from tests.rig.listener import listening

MAX_STEPS = 6  # of the event loop; after the third, the handler of the connection has started


async def wait(*_: object) -> None:
    await asyncio.Event().wait()


async def connect_and_end(steps: int) -> None:
    """Connect, end the listener after some steps of the loop."""
    with socket.socket() as client:
        client.settimeout(0)
        async with listening(wait) as port:
            await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
            for _ in range(steps):
                await asyncio.sleep(0)


@pytest.mark.parametrize("steps", range(MAX_STEPS))
def test_listener_leaves_no_connection_open(steps: int) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gc.collect()
        caught.clear()  # what earlier tests have left
        asyncio.run(connect_and_end(steps))
        gc.collect()

    assert [str(each.message) for each in caught] == []
