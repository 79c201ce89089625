"""A higher CPU priority for the processes of a measurement, which other work then delays less."""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.rig.servers import Servers

from harebell.dev.spawn import Process, identify, tree

RAISED: Final = -10  # of the nice values -20 to 19, of which the lowest goes first


@contextmanager
def raised_priority(servers: Servers) -> Iterator[bool]:
    """Raise the priority of this process and of the private servers, if the user may do so.

    Yield whether the priority is raised. Processes that start in this context inherit it.
    """
    daemons = () if servers.private is None else servers.private.daemons
    roots = [identify(os.getpid()), *(daemon.process for daemon in daemons)]
    before: dict[int, int] = {}
    try:
        with suppress(PermissionError):
            for thread in _threads(each for each in roots if each is not None):
                with suppress(ProcessLookupError):  # the thread has ended
                    before[thread] = os.getpriority(os.PRIO_PROCESS, thread)
                    os.setpriority(os.PRIO_PROCESS, thread, RAISED)
        yield os.getpriority(os.PRIO_PROCESS, 0) == RAISED
    finally:
        for thread, priority in before.items():
            with suppress(ProcessLookupError, PermissionError):
                os.setpriority(os.PRIO_PROCESS, thread, priority)


def _threads(roots: Iterable[Process]) -> Iterator[int]:
    """Yield the threads of the processes and of their children. Linux has one value for each."""
    for root in roots:
        for process in tree(root):
            with suppress(FileNotFoundError):
                for task in Path(f"/proc/{process.pid}/task").iterdir():
                    yield int(task.name)
