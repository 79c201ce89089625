"""Every fault of the matrix that is made by itself; importing this makes them known."""

from tests.chaos.faults import crowds, desk, links, messages, processes, queues, servers
from tests.chaos.faults.registry import Fault, chosen, listed

__all__ = [
    "Fault",
    "chosen",
    "crowds",
    "desk",
    "links",
    "listed",
    "messages",
    "processes",
    "queues",
    "servers",
]
