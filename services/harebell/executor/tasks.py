"""What a task's author needs: the context of a call, two ways to fail, and two tasks to try.

A task is a callable registered under the entry point group `harebell.tasks`. It takes `(args)` or
`(args, context)` and is plain (run in a thread) or async (run on the event loop).
"""

import asyncio
from datetime import datetime, timedelta
from typing import Any, NamedTuple


class Permanent(Exception):
    """Raised by a task that would fail again: it is not retried."""


class RetryLater(Exception):
    """Raised by a task that asks not to be tried again before `after` has passed."""

    def __init__(self, after: timedelta, reason: str = "asked to be tried later") -> None:
        super().__init__(reason)
        self.after = after


class TaskContext(NamedTuple):
    """Which run this is. `run_id` stays the same over retries, `fencing_token` only grows."""

    run_id: str
    attempt: int
    fencing_token: int
    scheduled_for: datetime
    deadline: float  # on time.monotonic(), in seconds; then the attempt has timed out


def echo(args: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments."""
    return args


async def sleep(args: dict[str, Any]) -> None:
    """Wait for `seconds`."""
    await asyncio.sleep(float(args["seconds"]))
