"""The window of each tenant: the bytes of its commands that no service has applied yet."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from harebell.runtime.clock import monotonic

# A command that arrives at its service waits for the windows of the other active tenants.
WINDOW: Final = 64 * 1024  # bytes of commands, or one larger message
CREDIT_TIMEOUT: Final = 10.0  # seconds after which a credit counts as lost
MAX_UNAPPLIED: Final = 100_000  # messages; further ones count in no window


@dataclass(frozen=True, slots=True)
class _Unapplied:
    """The size of an unapplied message, the queue of its tenant, and its monotonic time."""

    queue: str
    size: int
    since: float


class TenantWindows:
    """The windows of the intake queues of tenants. The queue of all other commands has none.

    Credits come from the ticker for changes of schedules and reports of workers, and from the
    dlq_inspector for commands about dead letters. Without any, the windows admit everything,
    because these services or the definitions file may be of an older version, which knows no
    credits.
    """

    def __init__(
        self,
        *,
        shared_queue: str,
        size_of: Callable[[str], int] = lambda _: WINDOW,
        now: Callable[[], float] = monotonic,
    ) -> None:
        """Create the windows. `size_of` returns the bytes of the window of a queue."""
        self._shared_queue = shared_queue
        self._size_of = size_of
        self._now = now
        self._unapplied: dict[int, _Unapplied] = {}  # by credit number, the oldest first
        self._bytes: Counter[str] = Counter()
        self._last_number = 0
        self._is_granted = False
        self.changed = asyncio.Event()

    def admits(self, queue: str, taken: int, size: int) -> bool:
        """Return whether the queue may pass on `size` bytes after the `taken` bytes of a batch."""
        self._expire()
        if queue == self._shared_queue:
            return True
        pending = self._bytes[queue] + taken
        return not pending or not self._is_granted or pending + size <= self._size_of(queue)

    def reserve(self, queue: str, size: int) -> int | None:
        """Count a message as unapplied, and return its credit number, or None without a window."""
        if queue == self._shared_queue or len(self._unapplied) >= MAX_UNAPPLIED:
            return None
        self._last_number += 1
        self._unapplied[self._last_number] = _Unapplied(queue, size, self._now())
        self._bytes[queue] += size
        return self._last_number

    def grant(self, numbers: Iterable[int]) -> None:
        """Count these messages as applied. A repeated or unknown number changes nothing."""
        self._is_granted = True
        self._remove(numbers)

    def reset(self) -> None:
        """Forget all unapplied messages, because their credits may be lost."""
        self._is_granted = False
        self._remove(list(self._unapplied))

    def _expire(self) -> None:
        oldest = next(iter(self._unapplied.values()), None)
        if oldest is not None and self._now() - oldest.since > CREDIT_TIMEOUT:
            self.reset()

    def _remove(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            applied = self._unapplied.pop(number, None)
            if applied is not None:
                self._bytes[applied.queue] -= applied.size
        self.changed.set()
