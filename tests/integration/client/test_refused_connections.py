"""Servers that accept a connection and are no broker, such as a load balancer without a broker."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import pytest
import uvloop

from harebell.connection.amqp import connect
from harebell.contract.errors import BrokerUnavailable

ROUNDS, CONCURRENT = 3, 10  # the error of the library depends on the progress of the connection


@contextmanager
def closing_server(greeting: bytes) -> Iterator[int]:
    """Run a server in a thread that sends the greeting and closes. Yield its port."""
    server = socket.create_server(("127.0.0.1", 0), backlog=CONCURRENT)

    def serve() -> None:
        with suppress(OSError):  # the server is closed
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
def test_connect_raises_broker_unavailable_without_an_amqp_greeting(greeting: bytes) -> None:
    """Use the event loop of the services, which detects the end earlier than asyncio's loop."""

    async def fail(port: int) -> None:
        with pytest.raises(BrokerUnavailable):
            await connect(f"amqp://127.0.0.1:{port}/", name="test", properties={})

    async def fail_all() -> None:
        with closing_server(greeting) as port:
            for _ in range(ROUNDS):
                await asyncio.gather(*(fail(port) for _ in range(CONCURRENT)))

    uvloop.run(fail_all())
