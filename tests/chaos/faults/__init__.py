"""Every fault of the matrix that is made by itself; importing this makes them known."""

from tests.chaos.faults import (
    clocks,
    crowds,
    desk,
    links,
    messages,
    poison,
    processes,
    queues,
    servers,
)
from tests.chaos.faults.registry import Fault, chosen, listed

__all__ = [
    "Fault",
    "chosen",
    "clocks",
    "crowds",
    "desk",
    "links",
    "listed",
    "messages",
    "poison",
    "processes",
    "queues",
    "servers",
]
