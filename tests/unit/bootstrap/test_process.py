"""The order of the start and the stop of a service."""

import asyncio

from harebell.bootstrap.process import run_until


async def test_service_stopped_before_readiness_starts_nothing() -> None:
    begun: list[str] = []

    async def begin(name: str) -> None:
        begun.append(name)

    stop = asyncio.Event()
    stop.set()
    await run_until(stop, consuming=[begin("consumer")], background=[begin("loop")])

    assert begun == []


async def test_consumers_end_before_background_loops_after_a_stop() -> None:
    ended: list[str] = []
    stop = asyncio.Event()

    async def consume() -> None:
        await stop.wait()
        ended.append("consumer")

    async def loop() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("loop")

    asyncio.get_running_loop().call_later(0.01, stop.set)
    await run_until(stop, consuming=[consume()], background=[loop()])

    assert ended == ["consumer", "loop"]
