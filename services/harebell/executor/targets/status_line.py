"""The status line of a response, which is known even if the rest of the response is invalid."""

import asyncio
import re
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from aiohttp import TCPConnector
from aiohttp.client_proto import ResponseHandler

MAX_HEAD: Final = 64 * 1024  # bytes of interim responses and of the status line

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})[ \r\n]")
_END_OF_HEAD: Final = b"\r\n\r\n"
_INTERIM: Final = range(100, 200)


@dataclass(slots=True)
class SeenResponse:
    """The status of the response to the present request, or None before its status line."""

    status: int | None = None


# The connector creates the protocol in the task of the attempt, and has no parameter for it.
SEEN: Final[ContextVar[SeenResponse | None]] = ContextVar("seen_response", default=None)


class StatusLineHandler(ResponseHandler):
    """A protocol that notes the status before the parser reads the response.

    A connection serves one request. The protocol of TLS within a proxy is another one, so the
    status of the proxy does not count.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._seen = SEEN.get() or SeenResponse()
        self._seen.status = None
        self._head: bytes | None = b""

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            self._head = self._read_head(self._head + data)
        super().data_received(data)

    def _read_head(self, head: bytes) -> bytes | None:
        """Note the status of the first response that is not interim. Return the unread bytes.

        Return None when no more bytes are needed.
        """
        while (line := _STATUS_LINE.match(head)) is not None:
            status = int(line[1])
            if status not in _INTERIM:
                self._seen.status = status
                return None
            _, end, rest = head.partition(_END_OF_HEAD)
            if not end:
                break
            head = rest
        return head if len(head) <= MAX_HEAD else None


class StatusLineConnector(TCPConnector):
    """A connector whose connections note the status of their response."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]  # the options of the base class
        loop = self._loop
        self._factory = lambda: StatusLineHandler(loop)  # type: ignore[assignment]  # as there
