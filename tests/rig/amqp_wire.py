"""A publisher that writes the frames of AMQP 0-9-1 itself, so that it can send any properties.

Client libraries encode and check the properties. The broker passes on more than they can write.
"""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

METHOD, HEADER, BODY = 1, 2, 3
FRAME_END = b"\xce"
FRAME_MAX = 131_072  # bytes, the default of RabbitMQ
BASIC = 60
START, TUNE, OPEN_OK, CLOSE = (10, 10), (10, 30), (10, 41), (10, 50)
CHANNEL_OPEN_OK, CHANNEL_CLOSE, SELECT_OK = (20, 11), (20, 40), (85, 11)
RETURN, ACK, NACK = (60, 50), (60, 80), (60, 120)
TIMEOUT = 10.0  # seconds for an answer of the broker


class RefusedByBrokerError(Exception):
    """The broker has closed the channel or the connection, or has not queued the message."""


def short_text(value: bytes) -> bytes:
    return bytes([len(value)]) + value


def long_text(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


@dataclass
class Wire:
    """A connection with one channel that confirms each message."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    @asynccontextmanager
    async def open(cls, amqp_url: str) -> AsyncIterator["Wire"]:
        url = urlsplit(amqp_url)
        reader, writer = await asyncio.open_connection(url.hostname, url.port or 5672)
        wire = cls(reader, writer)
        login = f"\0{unquote(url.username or 'guest')}\0{unquote(url.password or 'guest')}"
        try:
            writer.write(b"AMQP\x00\x00\x09\x01")
            await wire._expect(START)
            await wire._call(
                0,
                (10, 11),
                long_text(b"") + short_text(b"PLAIN") + long_text(login.encode()) + short_text(b""),
                answer=TUNE,
            )
            wire._method(0, (10, 31), struct.pack(">HIH", 1, FRAME_MAX, 0))
            host = unquote(url.path.removeprefix("/")) or "/"
            await wire._call(0, (10, 40), short_text(host.encode()) + b"\x00\x00", answer=OPEN_OK)
            await wire._call(1, (20, 10), short_text(b""), answer=CHANNEL_OPEN_OK)
            await wire._call(1, (85, 10), b"\x00", answer=SELECT_OK)
            yield wire
        finally:
            writer.close()
            with suppress(ConnectionError):  # the broker may have ended the connection
                await writer.wait_closed()

    async def publish(
        self, exchange: str, routing_key: bytes, properties: bytes, body: bytes
    ) -> None:
        """Publish a message and wait for its confirm. `properties` are the flags and the list.

        Raise `RefusedByBrokerError`, after which the connection is of no use.
        """
        header = struct.pack(">HHQ", BASIC, 0, len(body)) + properties
        if len(header) > FRAME_MAX - 8:
            raise RefusedByBrokerError("the properties need more than one frame")
        arguments = b"\x00\x00" + short_text(exchange.encode()) + short_text(routing_key)
        self._method(1, (60, 40), arguments + b"\x01")  # mandatory
        self._frame(HEADER, 1, header)
        for start in range(0, len(body), FRAME_MAX - 8):
            self._frame(BODY, 1, body[start : start + FRAME_MAX - 8])
        await self._expect(ACK)

    async def _call(
        self, channel: int, method: tuple[int, int], arguments: bytes, *, answer: tuple[int, int]
    ) -> None:
        self._method(channel, method, arguments)
        await self._expect(answer)

    async def _expect(self, answer: tuple[int, int]) -> None:
        """Read frames until the answer. Raise `RefusedByBrokerError` for another answer."""
        while True:
            try:
                async with asyncio.timeout(TIMEOUT):
                    kind, size = struct.unpack(">BxxI", await self.reader.readexactly(7))
                    payload = await self.reader.readexactly(size + 1)
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                raise RefusedByBrokerError("the connection is closed") from error
            if kind != METHOD:
                continue
            method = struct.unpack(">HH", payload[:4])
            if method == answer:
                return
            if method in (CLOSE, CHANNEL_CLOSE, RETURN, NACK):
                raise RefusedByBrokerError(f"{method}: {payload[4:80]!r}")

    def _method(self, channel: int, method: tuple[int, int], arguments: bytes) -> None:
        self._frame(METHOD, channel, struct.pack(">HH", *method) + arguments)

    def _frame(self, kind: int, channel: int, payload: bytes) -> None:
        self.writer.write(struct.pack(">BHI", kind, channel, len(payload)) + payload + FRAME_END)
