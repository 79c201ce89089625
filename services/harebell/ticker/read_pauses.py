"""The pauses between periodic reads, which a held snapshot makes slower and slower."""

from typing import Final

MAX_SHARE: Final = 0.05  # of the time that the reads of one kind may take


def pause_after_read(duration: float, *, shortest: float, longest: float) -> float:
    """Return the seconds until the next read, after one that took `duration` seconds."""
    return min(max(duration / MAX_SHARE, shortest), longest)
