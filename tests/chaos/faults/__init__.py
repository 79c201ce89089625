"""Every fault of the matrix that is made by itself; importing this makes them known."""

from tests.chaos.faults import (
    broker_versions,
    clocks,
    clusters,
    dead_letters,
    delays,
    links,
    load_spikes,
    messages,
    poison,
    processes,
    queues,
    servers,
    tzdata,
)
from tests.chaos.faults.registry import Fault, chosen, listed

__all__ = [
    "Fault",
    "broker_versions",
    "chosen",
    "clocks",
    "clusters",
    "dead_letters",
    "delays",
    "links",
    "listed",
    "load_spikes",
    "messages",
    "poison",
    "processes",
    "queues",
    "servers",
    "tzdata",
]
