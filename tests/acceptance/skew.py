"""Hosts whose clocks are wrong: what a service takes for the time of day, by libfaketime.

Only the time of day is wrong. The monotonic clock goes on as it does where NTP or a person sets a
clock.
"""

from dataclasses import dataclass
from pathlib import Path

LIBRARIES = Path("/usr/lib")  # Debian's: <architecture>/faketime
LIBRARY = "*/faketime/libfaketimeMT.so.1"  # for programs with threads


@dataclass(frozen=True)
class HostClock:
    """The clock of one host, which may be set while services run there."""

    file: Path

    def set(self, seconds: float) -> None:
        """So far ahead of the truth, or behind it."""
        written = self.file.with_suffix(".new")
        written.write_text(f"{seconds:+g}s\n")
        written.replace(self.file)  # at once: whoever reads it meanwhile finds all of it

    @property
    def environment(self) -> dict[str, str]:
        """Of a process on that host."""
        library = next(LIBRARIES.glob(LIBRARY), None)
        assert library is not None, "the Debian package faketime is not installed"
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",  # a clock that is set is read so at once
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
