"""A fast web service in one process, which records the time of each call.

`python listener.py FILE` prints its port. FILE receives pairs of doubles: due, called.
"""

import asyncio
import re
import sys
import time
from array import array
from datetime import datetime
from pathlib import Path
from typing import Final

FLUSH: Final = 0.1  # seconds
RESPONSE: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_END: Final = b"\r\n\r\n"
_DUE: Final = re.compile(rb"harebell-scheduled-for: (\S+)", re.IGNORECASE)
_LENGTH: Final = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


class Calls:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._pairs = array("d")

    def record(self, due: float) -> None:
        if not self._pairs:
            asyncio.get_running_loop().call_later(FLUSH, self._flush)
        self._pairs.extend((due, time.time()))

    def _flush(self) -> None:
        with self._file.open("ab") as file:
            self._pairs.tofile(file)
        del self._pairs[:]


class Connection(asyncio.Protocol):
    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._unread += data
        while (end := self._unread.find(_END)) >= 0:
            head = self._unread[:end]
            length = _LENGTH.search(head)
            whole = end + len(_END) + (int(length[1]) if length else 0)
            if len(self._unread) < whole:
                return
            self._unread = self._unread[whole:]
            due = _DUE.search(head)
            self._calls.record(datetime.fromisoformat(due[1].decode()).timestamp() if due else 0.0)
            self._transport.write(RESPONSE)


async def main() -> None:
    calls = Calls(Path(sys.argv[1]))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(calls), "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
