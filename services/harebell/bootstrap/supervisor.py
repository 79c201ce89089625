"""Reports of a service to its supervisor: started, stopping, alive, as systemd defines them.

The supervisor passes the address of a socket in the environment. Without it, no report is sent.
"""

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
ALIVE: Final = "WATCHDOG=1"
REPORTS_PER_TIMEOUT: Final = 3  # a late report alone does not end the service
MICROSECONDS: Final = 1_000_000
UNIX_PREFIXES: Final = ("/", "@")  # of a path, and of an abstract name


@dataclass(frozen=True, slots=True)
class Supervisor:
    """The supervisor of this process. A report that cannot be sent changes nothing."""

    address: str | None = None
    watchdog_seconds: float | None = None  # the time without a report that ends this process

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Supervisor":
        """Return the supervisor that the environment names."""
        address = environ.get("NOTIFY_SOCKET", "")
        if not address.startswith(UNIX_PREFIXES):
            return cls()
        return cls(address, watchdog_seconds=_watchdog_seconds(environ))

    def report(self, state: str) -> None:
        """Send a state. It never waits: the supervisor reads the socket all the time."""
        if self.address is None:
            return
        address = self.address
        if address.startswith("@"):
            address = f"\0{address[1:]}"
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(0)
            sender.sendto(state.encode(), address)

    async def report_alive(self) -> None:
        """Report again and again that the event loop runs, if the supervisor expects it."""
        if self.watchdog_seconds is None:
            return
        while True:
            self.report(ALIVE)
            await asyncio.sleep(self.watchdog_seconds / REPORTS_PER_TIMEOUT)


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    """Return the time without a report after which the supervisor kills this process."""
    microseconds = environ.get("WATCHDOG_USEC", "")
    is_meant = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    if not is_meant or not microseconds.isdecimal() or microseconds == "0":
        return None
    return int(microseconds) / MICROSECONDS


# The supervisor of the process that `run_service` has started. A test has none.
SUPERVISOR: Final = ContextVar("SUPERVISOR", default=Supervisor())  # noqa: B039  # it is frozen
