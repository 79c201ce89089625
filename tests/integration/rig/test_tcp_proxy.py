"""The proxy does to a link what it is told, against a server that says everything back."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.chaos.links import BROKER, DATABASE, Links

SHORT = 0.3  # seconds in which nothing may come
LONG = 5.0  # seconds in which it must
WORD = b"harebell"

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def link() -> AsyncIterator[Links]:
    """Of a service called `one`; both of its servers are the same echo."""
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    url = f"amqp://guest:guest@127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        with Links.open(["one"], {BROKER: url, DATABASE: url}) as links:
            yield links


@asynccontextmanager
async def opened(links: Links, server: str = BROKER) -> AsyncIterator[Ends]:
    ends = await asyncio.open_connection("127.0.0.1", links.ports[f"one/{server}"])
    try:
        yield ends
    finally:
        ends[1].transport.abort()


async def said_back(ends: Ends, word: bytes = WORD, within: float = LONG) -> float:
    """Seconds until the whole word was back."""
    began = time.monotonic()
    ends[1].write(word)
    async with asyncio.timeout(within):
        assert await ends[0].readexactly(len(word)) == word
    return time.monotonic() - began


async def test_a_link_that_is_as_it_should_be_carries_everything() -> None:
    async with link() as links, opened(links) as ends:
        await said_back(ends, WORD * 1_000)


async def test_a_url_leads_through_the_link() -> None:
    async with link() as links:
        through = links.through("amqp://me:secret@127.0.0.1:1/host", "one", BROKER)

        assert through == f"amqp://me:secret@127.0.0.1:{links.ports['one/broker']}/host"


async def test_cut_every_connection_is_reset_and_every_new_one_until_it_heals() -> None:
    async with link() as links, opened(links) as old, opened(links, DATABASE) as other:
        await said_back(old)

        links.set("one", BROKER, cut=True)
        with pytest.raises(ConnectionResetError):
            await old[0].readexactly(1)
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            async with opened(links) as refused:
                await said_back(refused)
        await said_back(other)
        links.set("one", BROKER)

        async with opened(links) as new:
            await said_back(new)


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_held_nothing_passes_and_nothing_is_lost(direction: str) -> None:
    async with link() as links, opened(links) as ends:
        await said_back(ends)

        links.set("one", BROKER, **{direction: {"held": True}})
        with pytest.raises(TimeoutError):
            await said_back(ends, within=SHORT)
        links.set("one", BROKER)

        async with asyncio.timeout(LONG):
            assert await ends[0].readexactly(len(WORD)) == WORD


async def test_held_a_new_connection_waits() -> None:
    async with link() as links:
        links.set("one", BROKER, up={"held": True})
        async with opened(links) as ends:
            with pytest.raises(TimeoutError):
                await said_back(ends, within=SHORT)
            links.set("one", BROKER)

            async with asyncio.timeout(LONG):
                assert await ends[0].readexactly(len(WORD)) == WORD


async def test_delayed_each_direction_takes_its_time() -> None:
    async with link() as links, opened(links) as ends:
        links.set("one", BROKER, up={"delay": 0.2}, down={"delay": 0.1})

        assert await said_back(ends) >= 0.3


async def test_slow_so_many_bytes_take_their_time() -> None:
    async with link() as links, opened(links) as ends:
        links.set("one", BROKER, down={"rate": 1000})

        assert await said_back(ends, b"x" * 500) >= 0.4
