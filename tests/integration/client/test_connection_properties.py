"""Whatever accepts a connection and is no broker: a balancer before one that is down, say."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import pytest
import uvloop

from harebell.client.connection import connect
from harebell.contract.errors import BrokerUnavailable

TIMES, AT_ONCE = 3, 10  # what the library makes of it depends on how far it has come


@contextmanager
def hanging_up(greeting: bytes) -> Iterator[int]:
    """The port of a server that says so much to everyone; at once, having a thread of its own."""
    server = socket.create_server(("127.0.0.1", 0), backlog=AT_ONCE)

    def serve() -> None:
        with suppress(OSError):  # it is closed
            while True:
                client, _ = server.accept()
                client.sendall(greeting)
                client.close()

    thread = Thread(target=serve)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


@pytest.mark.parametrize("greeting", [b"", b"\x01", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_whatever_hangs_up_instead_of_greeting_is_no_broker(greeting: bytes) -> None:
    """On the services' event loop, which sees the end sooner than asyncio's own does."""

    async def refused(port: int) -> None:
        with pytest.raises(BrokerUnavailable):
            await connect(f"amqp://127.0.0.1:{port}/", name="test", properties={})

    async def all_refused() -> None:
        with hanging_up(greeting) as port:
            for _ in range(TIMES):
                await asyncio.gather(*(refused(port) for _ in range(AT_ONCE)))

    uvloop.run(all_refused())
