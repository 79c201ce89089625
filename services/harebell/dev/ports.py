"""Free loopback ports, which stay the same for the same folder.

A process reserves the ports that it chooses, because a server may listen some seconds later, or
not while it restarts. A reservation is a socket with an abstract name, so it ends with its process.
"""

import atexit
import hashlib
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping

from harebell.dev.errors import NoFreePort

LOOPBACK = "127.0.0.1"

# Below the ephemeral range of Linux (from 32768), which outgoing connections use.
FIRST_PORT = 20_000
LAST_PORT = 29_999

_reserved: dict[int, socket.socket] = {}


def is_free(port: int) -> bool:
    """Return whether a server can listen on the port. Connections in TIME_WAIT do not matter."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def reserve(port: int) -> bool:
    """Reserve a free port for this process. Return whether no server and no process has it."""
    if port not in _reserved:
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0harebell-port-{port}")
        except OSError:
            reservation.close()
            return False
        _reserved[port] = reservation
    if not is_free(port):
        release([port])
        return False
    return True


def release(ports: Iterable[int]) -> None:
    """End the reservation of each port that this process has reserved."""
    for port in ports:
        if reservation := _reserved.pop(port, None):
            reservation.close()


@atexit.register  # Python warns of a socket that is open at its end
def _release_all() -> None:
    release(list(_reserved))


def choose_ports(
    names: Iterable[str],
    *,
    seed: str,
    remembered: Mapping[str, int],
    free: Callable[[int], bool] = reserve,
) -> dict[str, int]:
    """Return a port for each name: its remembered port if that is free, or another free port.

    The ports stay reserved for this process until `release`.

    The start of the search depends on `seed`, so that two checkouts rarely use the same ports.
    """
    taken = {*remembered.values(), *_reserved}
    candidates = (port for port in _from(seed) if port not in taken)
    chosen: dict[str, int] = {}
    for name in names:
        port = remembered.get(name)
        if port is not None and free(port):
            chosen[name] = port
        else:
            chosen[name] = _first_free(candidates, free)
    return chosen


def _from(seed: str) -> Iterator[int]:
    """Return every port of the range once, in an order that depends on the seed."""
    count = LAST_PORT - FIRST_PORT + 1
    start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big")
    return (FIRST_PORT + (start + step) % count for step in range(count))


def _first_free(ports: Iterator[int], free: Callable[[int], bool]) -> int:
    for port in ports:
        if free(port):
            return port
    raise NoFreePort(FIRST_PORT, LAST_PORT)
