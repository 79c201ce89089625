"""The start rank: the order in which the due runs of a lane start."""

from datetime import datetime, timedelta
from typing import Final

# The lateness after which a waiting run is as urgent as a punctual run of the next priority.
PRIORITY_STEP: Final = timedelta(seconds=5)


def start_rank(due_at: datetime, priority: int) -> datetime:
    """Return the start rank of a run. Among due runs, the lowest rank starts first.

    A run gains one priority step per PRIORITY_STEP of its lateness. Every run gains these steps
    equally fast, so the order of two ranks never changes. A run of priority p therefore starts
    before each run of priority p + n that is due more than n * PRIORITY_STEP later.
    """
    return due_at - PRIORITY_STEP * priority
