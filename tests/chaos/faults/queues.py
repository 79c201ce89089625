"""Row 29: an operator purges or deletes queues, and deletes an exchange or a binding."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Final
from urllib.parse import quote, urlsplit

from tests.chaos.environment import Environment
from tests.chaos.faults.registry import fault

TICKET_RECOVERY: Final = 60.0  # seconds in which the ticker publishes lost tickets again
REPEAT_INTERVAL: Final = 1.0  # seconds between two purges
WORK: Final = "harebell.work."
DELAY: Final = "harebell.delay."
DISPATCHER: Final = "harebell.dispatcher"


async def manage(environment: Environment, method: str, path: str) -> object:
    """Return the response of the management API for a path in the virtual host of the stack."""
    kind, _, rest = path.partition("/")
    full_path = f"{kind}/{virtual_host(environment)}/{rest}".rstrip("/")
    return await asyncio.to_thread(environment.stack.servers.management, method, full_path)


def virtual_host(environment: Environment) -> str:
    return quote(urlsplit(environment.stack.amqp_url).path.removeprefix("/"), safe="")


async def queues(environment: Environment, *prefixes: str) -> list[str]:
    found = await manage(environment, "GET", "queues")
    assert isinstance(found, list)
    return [each["name"] for each in found if each["name"].startswith(prefixes)]


async def purge(environment: Environment, names: Iterable[str]) -> None:
    for name in names:
        await manage(environment, "DELETE", f"queues/{name}/contents")


@fault(
    "29a",
    "work, delay and dispatcher queues purged repeatedly",
    recovery=TICKET_RECOVERY,
)
async def purged(environment: Environment) -> AsyncIterator[None]:
    names = await queues(environment, WORK, DELAY, DISPATCHER)

    async def purge_repeatedly() -> None:
        while True:
            await purge(environment, names)
            await asyncio.sleep(REPEAT_INTERVAL)

    purging = asyncio.create_task(purge_repeatedly())
    yield
    purging.cancel()


def _deleted(row: str, name: str, path: str) -> None:
    @fault(row, f"{name} deleted", recovery=TICKET_RECOVERY)
    async def inject(environment: Environment) -> AsyncIterator[None]:
        await manage(environment, "DELETE", path)
        yield


_deleted("29b", "a work queue", f"queues/{WORK}default.normal")
_deleted("29c", "the dispatcher queue", f"queues/{DISPATCHER}")
_deleted("29d", "the work exchange", "exchanges/harebell.work")
_deleted("29e", "the delay exchange", "exchanges/harebell.delay")
_deleted("29f", "the ticker queue", "queues/harebell.ticker")


@fault("29g", "delay queues deleted", recovery=TICKET_RECOVERY)
async def no_delay_queues(environment: Environment) -> AsyncIterator[None]:
    for name in await queues(environment, DELAY):
        await manage(environment, "DELETE", f"queues/{name}")
    yield


@fault("29h", "a binding of the work exchange deleted", recovery=TICKET_RECOVERY)
async def unbound(environment: Environment) -> AsyncIterator[None]:
    key = "default.normal"
    path = f"bindings/e/harebell.work/q/{WORK}{key}/{key}"
    await manage(environment, "DELETE", path)
    yield
