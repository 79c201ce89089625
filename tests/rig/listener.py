"""A TCP server of a test on the loopback interface, whose end leaves no connection open."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

HOST: Final = "127.0.0.1"

Handle: TypeAlias = Callable[
    [asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]
]


class Listener:
    """A server that handles each connection in a task, and closes it after the task.

    asyncio starts a handler one step after it accepts a connection.
    A handler that the end of the event loop cancels between the two never closes its connection.
    """

    def __init__(self, handle: Handle, *, tls: ssl.SSLContext | None = None) -> None:
        self._handle = handle
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def start(self) -> int:
        """Start to accept connections and return the port."""
        self._server = await asyncio.start_server(self._accept, HOST, 0, ssl=self._tls)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Refuse new connections, cancel the handlers and close the present connections."""
        assert self._server is not None
        self._server.close()
        tasks = list(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._handle(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._connections.pop(task).close()


@asynccontextmanager
async def listening(handle: Handle, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Yield the port of a server that handles each connection with `handle`."""
    listener = Listener(handle, tls=tls)
    port = await listener.start()
    try:
        yield port
    finally:
        await listener.close()
