"""Log files of the local stack: rotation, last lines and new lines."""

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

ROTATE_BYTES = 64 * 1024 * 1024  # checked at each start of a process; one old file remains


def rotate(log: Path, *, limit: int = ROTATE_BYTES) -> None:
    """Rename a log above the limit to `.old`."""
    if log.exists() and log.stat().st_size > limit:
        log.replace(log.with_suffix(".old"))


def log_files(root: Path) -> list[Path]:
    """Return the current logs of the stack in this folder."""
    return sorted((root / "logs").glob("*.log"))


def tail(log: Path, lines: int) -> str:
    """Return the last lines of a log, or an empty text without a log."""
    if not log.exists():
        return ""
    with log.open(encoding="utf-8", errors="replace") as text:
        return "".join(deque(text, maxlen=lines)).rstrip("\n")


class LogFollower:
    """A reader of the lines that processes append to logs after its creation."""

    def __init__(self, logs: Sequence[Path]) -> None:
        self._positions = {log: log.stat().st_size for log in logs}

    def new_lines(self) -> Iterator[tuple[str, str]]:
        """Yield the log name and the text of each complete line since the last call."""
        for log in self._positions:
            for line in self._since(log):
                yield log.stem, line

    def _since(self, log: Path) -> Iterator[str]:
        size = log.stat().st_size if log.exists() else 0
        if size < self._positions[log]:
            self._positions[log] = 0  # the log was rotated
        if size == self._positions[log]:
            return
        with log.open("rb") as lines_since:
            lines_since.seek(self._positions[log])
            for line in lines_since:
                if not line.endswith(b"\n"):
                    return
                self._positions[log] += len(line)
                yield line.decode(errors="replace").rstrip("\n")
