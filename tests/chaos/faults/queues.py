"""Row 29: an operator purges queues, deletes them, deletes an exchange or a binding."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final
from urllib.parse import quote, urlsplit

from tests.chaos.environment import Scene
from tests.chaos.faults.registry import fault

SWEEP: Final = 60.0  # seconds in which a sweep publishes again what got lost
AGAIN: Final = 1.0  # seconds between two purges
WORK: Final = "harebell.work."
TIERS: Final = "harebell.delay."
DISPATCHER: Final = "harebell.dispatcher"


async def manage(scene: Scene, method: str, path: str) -> object:
    """Some path of the management API below the stack's virtual host."""
    kind, _, rest = path.partition("/")
    return await asyncio.to_thread(
        scene.stack.servers.management, method, f"{kind}/{virtual_host(scene)}/{rest}".rstrip("/")
    )


def virtual_host(scene: Scene) -> str:
    return quote(urlsplit(scene.stack.amqp_url).path.removeprefix("/"), safe="")


async def queues(scene: Scene, *prefixes: str) -> list[str]:
    found = await manage(scene, "GET", "queues")
    assert isinstance(found, list)
    return [each["name"] for each in found if each["name"].startswith(prefixes)]


async def purge(scene: Scene, names: Iterable[str]) -> None:
    for name in names:
        await manage(scene, "DELETE", f"queues/{name}/contents")


@fault("29a", "work, delay and dispatcher queues purged, again and again", recovery=SWEEP)
async def purged(scene: Scene) -> AsyncIterator[None]:
    names = await queues(scene, WORK, TIERS, DISPATCHER)

    async def again() -> None:
        while True:
            await purge(scene, names)
            await asyncio.sleep(AGAIN)

    purging = asyncio.create_task(again())
    yield
    purging.cancel()


def _deleted(row: str, what: str, path: str) -> None:
    @fault(row, f"{what} deleted", recovery=SWEEP)
    async def strike(scene: Scene) -> AsyncIterator[None]:
        await manage(scene, "DELETE", path)
        yield


_deleted("29b", "a work queue", f"queues/{WORK}default.normal")
_deleted("29c", "the dispatcher's queue", f"queues/{DISPATCHER}")
_deleted("29d", "the exchange of work", "exchanges/harebell.work")
_deleted("29e", "the exchange of delays", "exchanges/harebell.delay")
_deleted("29f", "the tickers' queue", "queues/harebell.ticker")


@fault("29g", "delay queues deleted", recovery=SWEEP)
async def no_tiers(scene: Scene) -> AsyncIterator[None]:
    for name in await queues(scene, TIERS):
        await manage(scene, "DELETE", f"queues/{name}")
    yield


@fault("29h", "a binding of work deleted", recovery=SWEEP)
async def unbound(scene: Scene) -> AsyncIterator[None]:
    key = "default.normal"
    path = f"bindings/e/harebell.work/q/{WORK}{key}/{key}"
    await manage(scene, "DELETE", path)
    yield
