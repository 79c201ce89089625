"""Tests of the TCP proxy, as a process and in the test process, against an echo server."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.chaos.links import BROKER, DATABASE, Links
from tests.rig.listener import listening
from tests.rig.tcp_proxy import TcpProxy

SHORT = 0.3  # seconds without data
LONG = 5.0  # seconds within which the data must arrive
WORD = b"harebell"

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    except OSError:
        pass


@asynccontextmanager
async def echo_server() -> AsyncIterator[str]:
    async with listening(echo) as port:
        yield f"amqp://guest:guest@127.0.0.1:{port}"


@asynccontextmanager
async def open_links() -> AsyncIterator[Links]:
    """Open the links of the service `one`, whose servers are the same echo server."""
    async with echo_server() as url:
        with Links.open(["one"], {BROKER: url, DATABASE: url}) as links:
            yield links


@asynccontextmanager
async def connected(links: Links, server: str = BROKER) -> AsyncIterator[Ends]:
    async with connected_to(links.ports[f"one/{server}"]) as ends:
        yield ends


@asynccontextmanager
async def connected_to(port: int) -> AsyncIterator[Ends]:
    ends = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield ends
    finally:
        ends[1].transport.abort()


async def echo_time(ends: Ends, word: bytes = WORD, within: float = LONG) -> float:
    """Return the seconds until the whole word has returned."""
    started_at = time.monotonic()
    ends[1].write(word)
    async with asyncio.timeout(within):
        assert await ends[0].readexactly(len(word)) == word
    return time.monotonic() - started_at


async def test_proxy_carries_all_data_in_its_normal_condition() -> None:
    async with open_links() as links, connected(links) as ends:
        await echo_time(ends, WORD * 1_000)


async def test_url_through_a_link_has_the_port_of_the_proxy() -> None:
    async with open_links() as links:
        through = links.through("amqp://me:secret@127.0.0.1:1/host", "one", BROKER)

        assert through == f"amqp://me:secret@127.0.0.1:{links.ports['one/broker']}/host"


async def test_proxy_resets_present_and_new_connections_while_it_is_cut() -> None:
    async with open_links() as links, connected(links) as old, connected(links, DATABASE) as other:
        await echo_time(old)

        links.set("one", BROKER, cut=True)
        with pytest.raises(ConnectionResetError):
            await old[0].readexactly(1)
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            async with connected(links) as refused:
                await echo_time(refused)
        await echo_time(other)
        links.set("one", BROKER)

        async with connected(links) as new:
            await echo_time(new)


@pytest.mark.parametrize("direction", ["up", "down"])
async def test_proxy_holds_a_direction_without_a_loss(direction: str) -> None:
    async with open_links() as links, connected(links) as ends:
        await echo_time(ends)

        links.set("one", BROKER, **{direction: {"held": True}})
        with pytest.raises(TimeoutError):
            await echo_time(ends, within=SHORT)
        links.set("one", BROKER)

        async with asyncio.timeout(LONG):
            assert await ends[0].readexactly(len(WORD)) == WORD


async def test_new_connection_waits_while_the_proxy_is_on_hold() -> None:
    async with open_links() as links:
        links.set("one", BROKER, up={"held": True})
        async with connected(links) as ends:
            with pytest.raises(TimeoutError):
                await echo_time(ends, within=SHORT)
            links.set("one", BROKER)

            async with asyncio.timeout(LONG):
                assert await ends[0].readexactly(len(WORD)) == WORD


async def test_proxy_delays_each_direction() -> None:
    async with open_links() as links, connected(links) as ends:
        links.set("one", BROKER, up={"delay": 0.2}, down={"delay": 0.1})

        assert await echo_time(ends) >= 0.3


async def test_proxy_limits_the_rate_of_a_direction() -> None:
    async with open_links() as links, connected(links) as ends:
        links.set("one", BROKER, down={"rate": 1000})

        assert await echo_time(ends, b"x" * 500) >= 0.4


async def test_proxy_cuts_and_silences_only_the_present_connections() -> None:
    async with echo_server() as url, TcpProxy.open(url) as proxy:
        port = int(proxy.url.rpartition(":")[2])
        async with connected_to(port) as first, connected_to(port) as second:
            await echo_time(first)
            await echo_time(second)

            proxy.silence()
            with pytest.raises(TimeoutError):
                await echo_time(first, within=SHORT)
            async with connected_to(port) as third:
                await echo_time(third)
                proxy.cut()
                with pytest.raises(ConnectionResetError):
                    await third[0].readexactly(1)
            async with connected_to(port) as fourth:
                await echo_time(fourth)

    assert proxy.url.startswith("amqp://guest:guest@127.0.0.1:")
