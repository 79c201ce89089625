"""A replacement of `time.sleep` for processes under `faketime`, which Python imports at its start.

Python sleeps until a time of the monotonic clock. libfaketime 0.9.10 does not shift that clock, but
subtracts the shift from the time, so the call fails or never ends.
"""

import select
import time


def _sleep(seconds: float) -> None:
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    select.select((), (), (), seconds)


time.sleep = _sleep  # type: ignore[assignment]  # the tests sleep for numbers
