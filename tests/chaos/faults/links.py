"""Rows 17 to 19: links between services and their servers, cut, silent, one-way, slow, in turn."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from tests.chaos.environment import NAMES, Scene
from tests.chaos.faults.registry import fault
from tests.chaos.links import BROKER, DATABASE, SERVERS

FEWEST, MOST = 3, 8  # links of a swizzle
APART: Final = 0.7  # seconds between two links of a swizzle, at most
CONDITIONS: Final[dict[str, dict[str, Any]]] = {
    "reset": {"cut": True},
    "silent": {"up": {"held": True}, "down": {"held": True}},
    "deaf": {"down": {"held": True}},  # what it says arrives, what is said to it does not
    "mute": {"up": {"held": True}},
    "half a second away": {"up": {"delay": 0.25}, "down": {"delay": 0.25}},
    "a kilobyte a second": {"up": {"rate": 1024}, "down": {"rate": 1024}},
}
ROWS: Final = {BROKER: 17, DATABASE: 18}


def _bad_link(rows: tuple[str, str], server: str, what: str, condition: dict[str, Any]) -> None:
    """A lease lapses while its executor cannot reach the database."""
    one, every = rows

    @fault(one, f"a service's link to the {server}: {what}", lapses=server == DATABASE)
    async def strike(scene: Scene) -> AsyncIterator[None]:
        service = scene.dice.choice(NAMES)
        scene.links.set(service, server, **condition)
        yield
        scene.links.set(service, server)

    @fault(every, f"all links to the {server}: {what}", lapses=server == DATABASE)
    async def strike_all(scene: Scene) -> AsyncIterator[None]:
        for service in NAMES:
            scene.links.set(service, server, **condition)
        yield
        for service in NAMES:
            scene.links.set(service, server)


for _server, _number in ROWS.items():
    for _one, _all, _what in zip("abcdef", "ghijkl", CONDITIONS, strict=True):
        _bad_link((f"{_number}{_one}", f"{_number}{_all}"), _server, _what, CONDITIONS[_what])


@fault("19", "swizzle: links made bad one by one, healed in another order", lapses=True)
async def swizzle(scene: Scene) -> AsyncIterator[None]:
    links = [(service, server) for service in NAMES for server in SERVERS]
    chosen = scene.dice.sample(links, scene.dice.randint(FEWEST, MOST))
    for service, server in chosen:
        condition = scene.dice.choice(list(CONDITIONS.values()))
        scene.links.set(service, server, **condition)
        await asyncio.sleep(scene.dice.uniform(0, APART))
    yield
    for service, server in scene.dice.sample(chosen, len(chosen)):
        scene.links.set(service, server)
        await asyncio.sleep(scene.dice.uniform(0, APART))
