"""Rows 17 to 19: links between services and servers are reset, silent, one-way or slow."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from tests.chaos.environment import NAMES, Environment
from tests.chaos.faults.registry import fault
from tests.chaos.links import BROKER, DATABASE, SERVERS

MIN_LINKS, MAX_LINKS = 3, 8  # of row 19
MAX_INTERVAL: Final = 0.7  # seconds between two links of row 19
CONDITIONS: Final[dict[str, dict[str, Any]]] = {
    "reset": {"cut": True},
    "silent": {"up": {"held": True}, "down": {"held": True}},
    "nothing received": {"down": {"held": True}},  # data of the service still arrive
    "nothing sent": {"up": {"held": True}},
    "half a second of delay": {"up": {"delay": 0.25}, "down": {"delay": 0.25}},
    "a kilobyte a second": {"up": {"rate": 1024}, "down": {"rate": 1024}},
}
ROWS: Final = {BROKER: 17, DATABASE: 18}


def _bad_link(rows: tuple[str, str], server: str, text: str) -> None:
    """Register the faults of one link and of all links to a server.

    A lease expires while its executor cannot reach the database.
    """
    one_row, all_row = rows
    condition = CONDITIONS[text]
    expires = server == DATABASE

    @fault(one_row, f"the link of one service to the {server}: {text}", can_expire_leases=expires)
    async def inject_one(environment: Environment) -> AsyncIterator[None]:
        service = environment.random.choice(NAMES)
        environment.links.set(service, server, **condition)
        yield
        environment.links.set(service, server)

    @fault(all_row, f"all links to the {server}: {text}", can_expire_leases=expires)
    async def inject_all(environment: Environment) -> AsyncIterator[None]:
        for service in NAMES:
            environment.links.set(service, server, **condition)
        yield
        for service in NAMES:
            environment.links.set(service, server)


for _server, _number in ROWS.items():
    for _one, _all, _text in zip("abcdef", "ghijkl", CONDITIONS, strict=True):
        _bad_link((f"{_number}{_one}", f"{_number}{_all}"), _server, _text)


@fault(
    "19",
    "links damaged one by one, repaired in another order",
    can_expire_leases=True,
)
async def some_links(environment: Environment) -> AsyncIterator[None]:
    links, random = [(name, server) for name in NAMES for server in SERVERS], environment.random
    damaged = random.sample(links, random.randint(MIN_LINKS, MAX_LINKS))
    for service, server in damaged:
        condition = random.choice(list(CONDITIONS.values()))
        environment.links.set(service, server, **condition)
        await asyncio.sleep(random.uniform(0, MAX_INTERVAL))
    yield
    for service, server in random.sample(damaged, len(damaged)):
        environment.links.set(service, server)
        await asyncio.sleep(random.uniform(0, MAX_INTERVAL))
