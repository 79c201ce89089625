"""Log files of the local stack: their bound, their end, and following them."""

from collections import deque
from pathlib import Path

ROTATE_BYTES = 64 * 1024 * 1024  # looked at on each start of what writes it; one old file is kept


def rotate(log: Path) -> None:
    """Put an overgrown log aside."""
    if log.exists() and log.stat().st_size > ROTATE_BYTES:
        log.replace(log.with_suffix(".old.log"))


def tail(log: Path, lines: int) -> str:
    """The last lines of a log, or nothing when there is none yet."""
    if not log.exists():
        return ""
    with log.open(encoding="utf-8", errors="replace") as text:
        return "".join(deque(text, maxlen=lines)).rstrip("\n")
