"""The moments at which the clock of the machine must not matter, and the command that shifts it.

`faketime` shifts the clock of every process that it starts by the same number of seconds, so the
tests, RabbitMQ and PostgreSQL agree about the time. The monotonic clock stays as it is.
"""

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

SITE: Final = Path(__file__).parent / "shifted_clock"  # its `sitecustomize` is imported
SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # of Linux
TOMORROW: Final = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A time at which the tests start, in UTC, and the time zone of the machine.

    A moment without a date is at that time of tomorrow.
    """

    name: str
    hour: int
    minute: int
    date: tuple[int, int, int] | None = None
    zone: str = "UTC"

    def start(self, now: datetime) -> datetime:
        """Return the time at which the tests start, for a present time in UTC."""
        at = (now + TOMORROW).replace(hour=self.hour, minute=self.minute, second=0, microsecond=0)
        return at if self.date is None else datetime(*self.date, at.hour, at.minute, tzinfo=UTC)

    def command(self, now: datetime) -> tuple[str, ...]:
        """Return the words that start a command with this clock and this time zone."""
        remove_leftovers()
        shift = round((self.start(now) - now).total_seconds())
        return ("faketime", "-m", "-f", f"{shift:+d}s")

    def environment(self) -> dict[str, str]:
        """Return the variables of the command."""
        return {
            "TZ": self.zone,
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "PYTHONPATH": os.pathsep.join([str(SITE), *_python_path()]),
        }


def remove_leftovers(folder: Path = SHARED_MEMORY) -> None:
    """Remove the shared memory of processes that a kill has ended.

    Its name contains the id of the process, and a later process with that id could not start.
    """
    for each in folder.glob("*faketime_*"):
        process = Path("/proc", each.name.rpartition("_")[2], "environ")
        try:
            is_left = b"FAKETIME" not in process.read_bytes()
        except OSError:
            is_left = True
        if is_left:
            each.unlink(missing_ok=True)


def _python_path() -> list[str]:
    path = os.environ.get("PYTHONPATH")
    return [path] if path else []


# The changes of 2028: New York on 12 March and 5 November at 02:00 of its own time, Berlin on
# 26 March and 29 October at 01:00 UTC. The tests start a minute before.
MOMENTS: Final = (
    Moment(name="after midnight", hour=0, minute=1),
    Moment(name="before nine", hour=8, minute=59),
    Moment(name="before midnight", hour=23, minute=58),
    Moment(name="28 February", hour=23, minute=58, date=(2028, 2, 28), zone="Pacific/Kiritimati"),
    Moment(name="29 February", hour=0, minute=1, date=(2028, 2, 29), zone="America/St_Johns"),
    Moment(name="31 December", hour=23, minute=58, date=(2028, 12, 31), zone="Pacific/Apia"),
    Moment(
        name="spring of New York", hour=6, minute=59, date=(2028, 3, 12), zone="America/New_York"
    ),
    Moment(name="spring of Berlin", hour=0, minute=59, date=(2028, 3, 26), zone="Europe/Berlin"),
    Moment(name="autumn of Berlin", hour=0, minute=59, date=(2028, 10, 29), zone="Europe/Berlin"),
    Moment(
        name="autumn of New York", hour=5, minute=59, date=(2028, 11, 5), zone="America/New_York"
    ),
)
