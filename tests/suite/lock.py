"""The lock of the suites: two suites on one machine wait for each other, in any checkout."""

import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

FILE: Final = Path(tempfile.gettempdir()) / "harebell-suite.lock"
MAX_WAIT: Final = 2 * 3600.0  # seconds, which is longer than `make test-all` takes
POLL_INTERVAL: Final = 1.0  # seconds
FOR_ALL_USERS: Final = 0o666  # the mode of the file
MAX_HOLDER: Final = 300  # characters of the text about the holder


class SuiteIsBusy(Exception):
    """Another suite did not end within the time limit."""


@contextmanager
def suite_lock(
    name: str, *, path: Path = FILE, max_wait: float = MAX_WAIT, interval: float = POLL_INTERVAL
) -> Iterator[int]:
    """Yield the descriptor of the lock. Wait for the suite that has it, and print which one it is.

    A process that inherits the descriptor keeps the lock, so tests whose suite was killed keep it
    until they end. Raise `SuiteIsBusy` after `max_wait` seconds.
    """
    with _open(path) as descriptor:
        _acquire(descriptor, path, max_wait=max_wait, interval=interval)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _describe(name).encode()[:MAX_HOLDER], 0)
        yield descriptor


@contextmanager
def _open(path: Path) -> Iterator[int]:
    descriptor = _descriptor(path)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _descriptor(path: Path) -> int:
    """Open the file, or create it for every user of the machine.

    Linux forbids `O_CREAT` on the file of another user in a shared folder, also for root.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(FileNotFoundError):
        return os.open(path, flags)
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL)
    except FileExistsError:  # another process was faster
        return os.open(path, flags)
    os.fchmod(descriptor, FOR_ALL_USERS)
    return descriptor


def _acquire(descriptor: int, path: Path, *, max_wait: float, interval: float) -> None:
    end, announced = time.monotonic() + max_wait, ""
    while not _try_lock(descriptor):
        holder = os.pread(descriptor, MAX_HOLDER, 0).decode(errors="replace") or "another suite"
        if holder != announced:
            print(f"Waiting for {holder}. The lock is {path}.", file=sys.stderr, flush=True)  # noqa: T201  # the output
            announced = holder
        if time.monotonic() >= end:
            raise SuiteIsBusy(f"The suite waited {max_wait:g} s for {holder}.")
        time.sleep(interval)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _describe(name: str) -> str:
    return f"`{name}` of process {os.getpid()} in {Path.cwd()}, since {time.strftime('%H:%M:%S')}"
