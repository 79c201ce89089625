"""Cancellations of tasks that an error of a library hides."""

import asyncio


def is_being_cancelled() -> bool:
    """Return whether the current task is being cancelled, and false without a task."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop is running
        return False
    return task is not None and task.cancelling() > 0


def raise_if_cancelled(error: BaseException) -> None:
    """Raise `CancelledError` if the current task is being cancelled.

    A connection that closes at the same time raises its own error instead of the cancellation. A
    loop that handles this error would continue, and nobody would cancel it again.
    """
    if is_being_cancelled():
        raise asyncio.CancelledError from error
