"""Log files of the local stack: their bound, their end, and following them."""

from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

ROTATE_BYTES = 64 * 1024 * 1024  # looked at on each start of what writes it; one old file is kept


def rotate(log: Path, *, limit: int = ROTATE_BYTES) -> None:
    """Put an overgrown log aside."""
    if log.exists() and log.stat().st_size > limit:
        log.replace(log.with_suffix(".old"))


def all_of(root: Path) -> list[Path]:
    """Every current log of the stack in this directory."""
    return sorted((root / "logs").glob("*.log"))


def tail(log: Path, lines: int) -> str:
    """The last lines of a log, or nothing when there is none yet."""
    if not log.exists():
        return ""
    with log.open(encoding="utf-8", errors="replace") as text:
        return "".join(deque(text, maxlen=lines)).rstrip("\n")


class Follower:
    """Reads on from where each log ended when the following began."""

    def __init__(self, logs: Sequence[Path]) -> None:
        self._places = {log: log.stat().st_size for log in logs}

    def news(self) -> Iterator[tuple[str, str]]:
        """(name, line) of every whole line written since the last call."""
        for log in self._places:
            for line in self._since(log):
                yield log.stem, line

    def _since(self, log: Path) -> Iterator[str]:
        size = log.stat().st_size if log.exists() else 0
        if size < self._places[log]:
            self._places[log] = 0  # it was put aside and begun anew
        if size == self._places[log]:
            return
        with log.open("rb") as written:
            written.seek(self._places[log])
            for line in written:
                if not line.endswith(b"\n"):
                    return
                self._places[log] += len(line)
                yield line.decode(errors="replace").rstrip("\n")
