"""Virtual hosts with the topology `CORE`, which tests use one after the other.

The queues of one host take half a second of CPU time to create and to delete.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import aio_pika
from aio_pika.abc import AbstractChannel
from aiormq.exceptions import ChannelClosed
from tests.rig.polling import until
from tests.rig.servers import Servers

from harebell.messaging.declare import declare
from harebell.messaging.topology.bus import CORE


@dataclass(kw_only=True)
class CoreHosts:
    """The hosts of one session. A host that a test changed is deleted, and not used again."""

    servers: Servers
    _free: list[str] = field(default_factory=list)
    _opened: dict[str, ExitStack] = field(default_factory=dict)
    _definitions: list[str] = field(default_factory=list)

    @classmethod
    @contextmanager
    def open(cls, servers: Servers) -> Iterator["CoreHosts"]:
        hosts = cls(servers=servers)
        try:
            yield hosts
        finally:
            for url in list(hosts._opened):
                hosts._close(url)

    @asynccontextmanager
    async def host(self) -> AsyncIterator[str]:
        """Yield the URL of a host with every part of `CORE` and without messages."""
        url = self._free.pop() if self._free else await self._declare()
        yield url
        if self.servers.private is None:
            self._close(url)
        elif await self._is_empty(url) and self._read(url) == self._definitions:
            self._free.append(url)
        else:
            self._close(url)

    async def _declare(self) -> str:
        opened = ExitStack()
        url = opened.enter_context(self.servers.virtual_host())
        self._opened[url] = opened
        async with await aio_pika.connect(url) as connection:
            await declare(connection, CORE)
        if self.servers.private is not None and not self._definitions:
            self._definitions = self._read(url)
        return url

    def _read(self, url: str) -> list[str]:
        """Return each exchange, queue, binding and policy of the host."""
        name = urlsplit(url).path.removeprefix("/")
        read: dict[str, Any] = self.servers.management("GET", f"definitions/{name}")
        kinds = ("exchanges", "queues", "bindings", "policies")
        return sorted(json.dumps(each, sort_keys=True) for kind in kinds for each in read[kind])

    @staticmethod
    async def _is_empty(url: str) -> bool:
        """Remove the messages of the last test, or return False if it deleted a queue."""
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            try:
                await until(partial(_have_no_message, channel), what="queues without a consumer")
            except ChannelClosed:
                return False
        return True

    def _close(self, url: str) -> None:
        self._opened.pop(url).close()


async def _have_no_message(channel: AbstractChannel) -> bool:
    """Purge the queues. Return whether none had a message, or a consumer of the last test."""
    had_message = False
    for each in CORE.queues:
        queue = await channel.declare_queue(each.name, passive=True)
        state = queue.declaration_result
        if state.consumer_count:  # returns its unacknowledged messages when it ends
            return False
        if state.message_count:
            await queue.purge()
            had_message = True
    return not had_message
