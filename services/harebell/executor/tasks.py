"""The programming interface for task authors: the context of a call, two errors, two examples.

A task is a callable in the entry point group `harebell.tasks`, with the parameters `(args)` or
`(args, context)`. It runs on the event loop if it is async, and in a thread otherwise.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from harebell.contract.message import parse
from harebell.contract.progress import Progress


class Permanent(Exception):
    """The error of a task that would fail again, so that the run is not retried."""


class RetryLater(Exception):
    """The error of a task that must not be retried before `after` has passed."""

    def __init__(
        self, after: timedelta, reason: str = "The task requested a later attempt."
    ) -> None:
        super().__init__(reason)
        self.after = after


class TaskContext(NamedTuple):
    """The run of a call. `run_id` stays the same over retries, and `fencing_token` only grows.

    `tenant` owns the schedule.
    `replay_number` counts how often a person has had the run executed again. The attempts of each
    replay count from 1.
    With tracing, the span of the attempt is also the current span of OpenTelemetry in the task.

    The class is a tuple because each call creates one (decision 19).
    """

    run_id: str
    attempt: int
    fencing_token: int
    scheduled_for: datetime
    deadline: float  # of `time.monotonic()`, in seconds; then the attempt has timed out
    replay_number: int = 0  # of a run that is no replay
    tenant: str = ""  # of the schedule
    traceparent: str | None = None  # of the span of the attempt, in the format of W3C
    tracestate: str | None = None
    checkpoint: Any = None  # of the last report of the earlier attempts
    report: Callable[[Mapping[str, Any]], None] | None = None

    def progress(
        self,
        percent: float | None = None,
        message: str | None = None,
        checkpoint: Any = None,  # noqa: ANN401  # JSON is any of its types
    ) -> None:
        """Report the progress of the attempt, from the event loop or from the thread of a task.

        Fields that you omit keep their last value, and the report travels with the next renewal of
        the lease. The next attempt receives the last checkpoint. Raise `InvalidInput` for a percent
        outside 0 to 100, a message above 256 characters or a checkpoint above 4 KiB.
        """
        fields = {"percent": percent, "message": message, "checkpoint": checkpoint}
        checked = parse(Progress, fields).progress_fields()
        if self.report is not None:
            self.report(checked)


def echo(args: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the task."""
    return args


async def sleep(args: dict[str, Any]) -> None:
    """Sleep for `seconds`, an argument of the task."""
    await asyncio.sleep(float(args["seconds"]))
