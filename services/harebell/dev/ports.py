"""Loopback ports: free when chosen, kept for the next start, the same for the same directory."""

import hashlib
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping

from harebell.dev.errors import NoFreePort

LOOPBACK = "127.0.0.1"

# Below Linux's ephemeral range (32768 and up), where any outgoing connection may sit on a port.
FIRST_PORT = 20_000
LAST_PORT = 29_999


def is_free(port: int) -> bool:
    """Whether a server could listen here; connections in TIME_WAIT do not hinder one."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def choose(
    names: Iterable[str],
    *,
    seed: str,
    remembered: Mapping[str, int],
    free: Callable[[int], bool] = is_free,
) -> dict[str, int]:
    """Give every name its remembered port while that is free, else a free one nobody remembers.

    The search begins at a place that depends on `seed`, so that two checkouts seldom meet.
    """
    untouched = (port for port in _from(seed) if port not in remembered.values())
    chosen: dict[str, int] = {}
    for name in names:
        known = remembered.get(name)
        if known is not None and free(known):
            chosen[name] = known
        else:
            chosen[name] = _first_free(untouched, free)
    return chosen


def _from(seed: str) -> Iterator[int]:
    """Every port of the range once, from the seed's place on and round."""
    count = LAST_PORT - FIRST_PORT + 1
    start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big")
    return (FIRST_PORT + (start + step) % count for step in range(count))


def _first_free(ports: Iterator[int], free: Callable[[int], bool]) -> int:
    for port in ports:
        if free(port):
            return port
    raise NoFreePort(FIRST_PORT, LAST_PORT)
