"""Every fault of the matrix that is made by itself; importing this makes them known."""

from tests.chaos.faults import (
    clocks,
    clusters,
    crowds,
    delays,
    desk,
    links,
    messages,
    poison,
    processes,
    queues,
    releases,
    servers,
    zones,
)
from tests.chaos.faults.registry import Fault, chosen, listed

__all__ = [
    "Fault",
    "chosen",
    "clocks",
    "clusters",
    "crowds",
    "delays",
    "desk",
    "links",
    "listed",
    "messages",
    "poison",
    "processes",
    "queues",
    "releases",
    "servers",
    "zones",
]
